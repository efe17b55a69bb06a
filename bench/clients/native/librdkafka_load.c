/* One load run with librdkafka; prints one line of JSON.
 *
 *   librdkafka_load MODE BROKERS TOPIC PARTITIONS RECORD_BYTES RECORDS_MAX SECONDS_MAX [librdkafka setting=value ...]
 *
 * MODE produce    as fast as it goes, then waits for every delivery report
 *      zeros      the same with records of zeros, which compress to almost nothing
 *      consume    reads from the beginning until RECORDS_MAX records
 *      in-flight  one record at a time: produce to delivery report
 *      poll       one record at a time: produce to the record in a consumer's hand
 *
 * Built against librdkafka's public header; runs on the library that it is linked to.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define BATCH 1000
#define PAYLOAD_BYTES (1 << 20)
#define SETUP_SECONDS_MAX 20
#define SILENCE_SECONDS_MAX 20

typedef struct {
    const char *brokers, *topic;
    int partitions;
    size_t record_bytes;
    long records_max;
    double seconds_max;
    char **settings;
    int settings_count;
} job_t;

static char payload[PAYLOAD_BYTES];
static long delivered, failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void die(const char *what) {
    fprintf(stderr, "librdkafka_load: %s\n", what);
    exit(1);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err)
        failed++;
    else
        delivered++;
}

/* Half text, half noise: compresses about two to one. */
static void fill_payload(void) {
    unsigned noise = 12345;
    for (int i = 0; i < PAYLOAD_BYTES; i++) {
        noise = noise * 1103515245 + 12345;
        payload[i] = (i / 16) % 2 ? (char)(noise >> 16) : "the quick brown fox jumps over"[i % 30];
    }
}

static char *slice(const job_t *job, long number) {
    return payload + (number * 61) % (long)(PAYLOAD_BYTES - job->record_bytes);
}

static rd_kafka_conf_t *configuration(const job_t *job) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", job->brokers, error, sizeof error)) die(error);
    for (int i = 0; i < job->settings_count; i++) {
        char name[128];
        const char *equals = strchr(job->settings[i], '=');
        if (!equals || equals - job->settings[i] >= (long)sizeof name) die("settings are name=value");
        snprintf(name, sizeof name, "%.*s", (int)(equals - job->settings[i]), job->settings[i]);
        if (rd_kafka_conf_set(conf, name, equals + 1, error, sizeof error)) die(error);
    }
    return conf;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) die(error);
    return rk;
}

/* A topic handle whose leaders are known, so that no run pays for the first metadata. */
static rd_kafka_topic_t *topic(rd_kafka_t *rk, const job_t *job) {
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, job->topic, NULL);
    double deadline = now() + SETUP_SECONDS_MAX;
    while (now() < deadline) {
        const struct rd_kafka_metadata *metadata;
        if (!rd_kafka_metadata(rk, 0, handle, &metadata, 5000)) {
            int ready = metadata->topic_cnt == 1 && !metadata->topics[0].err &&
                        metadata->topics[0].partition_cnt == job->partitions;
            for (int i = 0; ready && i < job->partitions; i++) ready = metadata->topics[0].partitions[i].leader >= 0;
            rd_kafka_metadata_destroy(metadata);
            if (ready) return handle;
        }
        rd_kafka_poll(rk, 50);
    }
    die("the topic has no leaders");
    return NULL;
}

/* Hands all of a batch over, waiting for room in the queue as often as it takes. */
static void enqueue(rd_kafka_t *rk, rd_kafka_topic_t *handle, int partition, rd_kafka_message_t *batch, int count) {
    int taken = rd_kafka_produce_batch(handle, partition, 0, batch, count);
    while (taken < count) {
        int left = 0;
        for (int i = 0; i < count; i++) {
            if (!batch[i].err) continue;
            if (batch[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL) die(rd_kafka_err2str(batch[i].err));
            rd_kafka_message_t again = {.payload = batch[i].payload, .len = batch[i].len};
            batch[left++] = again;
        }
        count = left;
        rd_kafka_poll(rk, 1);
        taken = rd_kafka_produce_batch(handle, partition, 0, batch, count);
    }
}

static void produce(const job_t *job) {
    rd_kafka_conf_t *conf = configuration(job);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *handle = topic(rk, job);
    for (int p = 0; p < job->partitions; p++) /* the connection and, if asked for, the producer id */
        rd_kafka_produce(handle, p, 0, payload, job->record_bytes, NULL, 0, NULL);
    if (rd_kafka_flush(rk, SETUP_SECONDS_MAX * 1000)) die("the first records were not acknowledged");
    delivered = 0;
    static rd_kafka_message_t batch[BATCH];
    double start = now(), cpu = cpu_seconds();
    long sent = 0;
    for (int partition = 0; sent < job->records_max && now() - start < job->seconds_max; sent += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            rd_kafka_message_t message = {.payload = slice(job, sent + i), .len = job->record_bytes};
            batch[i] = message;
        }
        enqueue(rk, handle, partition, batch, BATCH);
        partition = (partition + 1) % job->partitions;
        rd_kafka_poll(rk, 0);
    }
    double deadline = now() + SILENCE_SECONDS_MAX;
    while (rd_kafka_outq_len(rk) > 0 && now() < deadline) rd_kafka_poll(rk, 10);
    double seconds = now() - start;
    if (failed || delivered != sent) {
        fprintf(stderr, "of %ld records %ld were delivered and %ld failed\n", sent, delivered, failed);
        exit(1);
    }
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %.0f, \"client_cpu_s\": %.6f}\n", seconds, delivered,
           (double)delivered * job->record_bytes, cpu_seconds() - cpu);
}

static void produce_zeros(const job_t *job) {
    memset(payload, 0, sizeof payload);
    produce(job);
}

static void consume(const job_t *job) {
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, configuration(job));
    rd_kafka_topic_t *handle = topic(rk, job);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    static rd_kafka_message_t *messages[10 * BATCH];
    double start = now(), cpu = cpu_seconds(), last = start, bytes = 0;
    long got = 0;
    for (int p = 0; p < job->partitions; p++)
        if (rd_kafka_consume_start_queue(handle, p, RD_KAFKA_OFFSET_BEGINNING, queue)) die("consume_start failed");
    while (got < job->records_max && now() - start < job->seconds_max) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, messages, 10 * BATCH);
        for (ssize_t i = 0; i < count; i++) {
            if (!messages[i]->err) got++, bytes += messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (count > 0) last = now();
        if (now() - last > SILENCE_SECONDS_MAX) die("no records arrive");
    }
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %.0f, \"client_cpu_s\": %.6f}\n", last - start, got, bytes,
           cpu_seconds() - cpu);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_latencies(double *seconds, long count) {
    if (count < 100) die("fewer than 100 round trips");
    qsort(seconds, count, sizeof *seconds, ascending);
    printf("{\"records\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"client_cpu_s\": %.6f}\n", count,
           seconds[count / 2] * 1e6, seconds[count * 99 / 100] * 1e6, seconds[count - 1] * 1e6, cpu_seconds());
}

/* The first tenth of the round trips warms up and is not counted. */
static void in_flight(const job_t *job) {
    rd_kafka_conf_t *conf = configuration(job);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *handle = topic(rk, job);
    double *taken = malloc(job->records_max * sizeof *taken), start = now();
    long count = 0;
    for (; count < job->records_max && now() - start < job->seconds_max; count++) {
        double sent = now();
        rd_kafka_produce(handle, count % job->partitions, 0, slice(job, count), job->record_bytes, NULL, 0, NULL);
        while (delivered + failed == count) rd_kafka_poll(rk, 1000);
        taken[count] = now() - sent;
    }
    if (failed) die("a record was not acknowledged");
    print_latencies(taken + count / 10, count - count / 10);
}

static void produce_to_poll(const job_t *job) {
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, configuration(job));
    rd_kafka_topic_t *to = topic(producer, job);
    job_t bare = *job; /* the settings are the producer's */
    bare.settings_count = 0;
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, configuration(&bare));
    rd_kafka_topic_t *from = topic(consumer, job);
    if (rd_kafka_consume_start(from, 0, RD_KAFKA_OFFSET_BEGINNING)) die("consume_start failed");
    double *taken = malloc(job->records_max * sizeof *taken), start = now();
    long count = 0;
    for (; count < job->records_max && now() - start < job->seconds_max; count++) {
        double sent = now();
        rd_kafka_produce(to, 0, 0, slice(job, count), job->record_bytes, NULL, 0, NULL);
        for (int got = 0; !got;) {
            rd_kafka_message_t *message = rd_kafka_consume(from, 0, 1000);
            if (now() - sent > SILENCE_SECONDS_MAX) die("a record did not arrive");
            if (!message) continue;
            got = !message->err;
            rd_kafka_message_destroy(message);
        }
        taken[count] = now() - sent;
        rd_kafka_poll(producer, 0);
    }
    print_latencies(taken + count / 10, count - count / 10);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(const job_t *);
    } modes[] = {{"produce", produce},
                 {"zeros", produce_zeros},
                 {"consume", consume},
                 {"in-flight", in_flight},
                 {"poll", produce_to_poll}};
    if (count < 8) die("usage: MODE BROKERS TOPIC PARTITIONS RECORD_BYTES RECORDS_MAX SECONDS_MAX [setting=value ...]");
    job_t job = {words[2], words[3], atoi(words[4]), strtoul(words[5], NULL, 10), atol(words[6]), atof(words[7]),
                 words + 8, count - 8};
    if (job.record_bytes >= PAYLOAD_BYTES) die("RECORD_BYTES is less than 1048576");
    fill_payload();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(words[1], modes[i].name)) continue;
        modes[i].run(&job);
        fflush(stdout);
        _Exit(0); /* the handles' slow farewell is no part of the run */
    }
    die("MODE is produce, zeros, consume, in-flight or poll");
    return 1;
}
