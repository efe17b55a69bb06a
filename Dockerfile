# The images of the broker, the operator and the jobs: docker build --target broker -t barnabas-broker:dev .
# Each is the files of images/root.sh, a virtual environment with what others wrote, and our sources; that of the jobs has
# Java, too. Where Debian's mirror is out of reach, `--build-context root=docker-image://...` puts an image of yours in the
# place of the stage `root`, and the same of `java-root` and `tools`. Broker and operator are also built for arm64, by
# programs of the machine that builds: nothing of the other architecture runs meanwhile.
FROM --platform=$BUILDPLATFORM docker.io/library/debian:bookworm-slim AS tools
RUN apt-get update -q \
 && apt-get install -qy --no-install-recommends binutils-multiarch ca-certificates mmdebstrap python3-pip python3-venv \
 && rm -rf /var/lib/apt/lists

FROM tools AS made-root
ARG TARGETARCH=amd64
COPY images/root.sh /
RUN /root.sh /made "$TARGETARCH"

FROM scratch AS root
COPY --from=made-root /made /
COPY --from=made-root --chown=10001:10001 /made/var/lib/barnabas /var/lib/barnabas

# What others wrote comes before our sources, so that a change of ours does not fetch it again. All of it are wheels: no
# compiler is needed. The package that pip installs of ours is empty, and gets its content later. Bytecode is made here,
# for the root file system of a pod is read-only.
FROM tools AS packages
ENV SITE=/opt/barnabas/lib/python3.11/site-packages
ENV INSTALL="python3 -m pip --python /opt/barnabas/bin/python install --no-cache-dir --no-deps"
ENV LOCKED="--require-hashes --only-binary :all:"
ENV COMPILE="/usr/bin/python3.11 -m compileall -q --invalidation-mode unchecked-hash"
COPY pyproject.toml README.md LICENSE NOTICE /src/
COPY images/install.sh /
COPY requirements /requirements
RUN mkdir -p /src/broker/src/barnabas /src/operator/src /src/spark-on-k8s/src && touch /src/broker/src/barnabas/__init__.py \
 && /usr/bin/python3.11 -m venv --without-pip /opt/barnabas

FROM packages AS broker-packages
ARG TARGETARCH=amd64
RUN /install.sh broker "$TARGETARCH" && $INSTALL /src && $COMPILE $SITE
COPY broker/src $SITE
RUN $COMPILE $SITE

FROM packages AS operator-packages
ARG TARGETARCH=amd64
RUN /install.sh operator "$TARGETARCH" && $INSTALL /src && $COMPILE $SITE
COPY broker/src/barnabas $SITE/barnabas
COPY broker/src/barnabas_core $SITE/barnabas_core
COPY broker/src/barnabas_kube $SITE/barnabas_kube
COPY broker/src/barnabas_web $SITE/barnabas_web
COPY operator/src $SITE
RUN $COMPILE $SITE

# Spark is 450 MB of jars, and comes as sources of Python that pip only copies. Nothing loads the jars of Spark Connect's shell.
FROM packages AS spark-packages
RUN $INSTALL $LOCKED --no-binary pyspark -r /requirements/spark.txt \
 && rm -r $SITE/pyspark/jars/connect-repl $SITE/pyspark/examples && $COMPILE $SITE

FROM packages AS jobs-packages
RUN $INSTALL $LOCKED -r /requirements/jobs.txt && $INSTALL /src && $COMPILE $SITE
COPY broker/src/barnabas $SITE/barnabas
COPY broker/src/barnabas_core $SITE/barnabas_core
COPY operator/src/barnabas_registry $SITE/barnabas_registry
COPY spark-on-k8s/src $SITE
RUN $COMPILE $SITE

FROM tools AS made-java-root
COPY images/root.sh /
RUN /root.sh /made amd64 java

FROM scratch AS java-root
COPY --from=made-java-root /made /
COPY --from=made-java-root --chown=10001:10001 /made/var/lib/barnabas /var/lib/barnabas

FROM java-root AS spark
ENV PATH=/opt/barnabas/bin:/usr/bin:/bin LC_ALL=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV SPARK_HOME=/opt/spark BARNABAS_SPARK_JARS=/opt/spark/connector
COPY --from=spark-packages /opt/barnabas /opt/barnabas
COPY images/prepare_spark.py /opt/spark/
RUN ["python", "/opt/spark/prepare_spark.py"]

# Spark's Kafka connector, by the checksums that the sources name. With `--build-arg S3=yes` also what archives in S3 need,
# of 700 MB.
FROM spark AS fetched
ARG S3=
COPY spark-on-k8s/src/barnabas_jobs/app/connector.py /fetch/barnabas_jobs/app/
COPY spark-on-k8s/src/barnabas_jobs/planning/errors.py /fetch/barnabas_jobs/planning/
WORKDIR /fetch
RUN ["python", "-m", "barnabas_jobs.app.connector"]

FROM scratch AS connector
COPY --from=fetched /opt/spark/connector /

FROM root AS image
ENV PATH=/opt/barnabas/bin:/usr/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/barnabas
ENTRYPOINT ["barnabas"]

FROM image AS broker
COPY --from=broker-packages /opt/barnabas /opt/barnabas
EXPOSE 9091 9092 9404
CMD ["broker", "/etc/barnabas/server.properties"]

FROM image AS operator
COPY --from=operator-packages /opt/barnabas /opt/barnabas
EXPOSE 8080 9443
CMD ["operator"]

FROM spark AS jobs
COPY images/spark-submit /opt/spark/bin/
COPY --from=connector / /opt/spark/connector/
COPY --from=jobs-packages /opt/barnabas /opt/barnabas
COPY images/executor-pod.yaml /opt/barnabas/
USER 10001:10001
WORKDIR /var/lib/barnabas
ENTRYPOINT ["barnabas", "jobs"]
CMD ["list"]
