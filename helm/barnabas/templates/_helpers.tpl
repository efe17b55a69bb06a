{{/* The name of everything: a release of another name stands beside this one (with crds.enabled=false). */}}
{{- define "barnabas.name" -}}
{{- if contains "barnabas" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-barnabas" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "barnabas.operator" -}}{{ include "barnabas.name" . }}-operator{{- end }}

{{- define "barnabas.selector" -}}
app.kubernetes.io/name: barnabas-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "barnabas.labels" -}}
{{ include "barnabas.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "barnabas.consoleSelector" -}}
app.kubernetes.io/name: barnabas-console
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "barnabas.consoleLabels" -}}
{{ include "barnabas.consoleSelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{/* What the schema of the values cannot say. */}}
{{- define "barnabas.checks" -}}
{{- if and .Values.watchAnyNamespace .Values.watchNamespaces }}
{{- fail (printf "watchNamespaces is %s and watchAnyNamespace is true; allowed: one of them" (toJson .Values.watchNamespaces)) }}
{{- end }}
{{- if and (.Values.metrics).tokenSecret (not (.Values.metrics).tlsSecret) }}
{{- fail (printf "metrics.tokenSecret is %s and metrics.tlsSecret is empty; allowed: both, because without TLS the token would be sent in clear" .Values.metrics.tokenSecret) }}
{{- end }}
{{- $own := include "barnabas.labels" . | fromYaml }}
{{- range $field, $given := dict "podLabels" .Values.podLabels "podMonitor.labels" .Values.podMonitor.labels "prometheusRules.labels" (.Values.prometheusRules).labels "dashboards.labels" (.Values.dashboards).labels }}
{{- range $label, $value := $given }}
{{- if hasKey $own $label }}
{{- fail (printf "%s has %s: %v; allowed: any label but the chart's own, %s" $field $label $value (keys $own | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The namespaces that are watched, as a JSON list; empty means all. */}}
{{- define "barnabas.namespaces" -}}
{{- if .Values.watchAnyNamespace }}{{ list | toJson }}{{ else if .Values.watchNamespaces }}{{ .Values.watchNamespaces | toJson }}{{ else }}{{ list .Release.Namespace | toJson }}{{ end }}
{{- end }}

{{/*
Those of them that are there and stay, as a JSON list: in others nothing can be made. Nobody knows where helm only renders, and
that of the release may be made by helm itself.
*/}}
{{- define "barnabas.presentNamespaces" -}}
{{- $present := list }}
{{- $asks := lookup "v1" "Namespace" "" "kube-system" }}
{{- range include "barnabas.namespaces" . | fromJsonArray }}
{{- $found := lookup "v1" "Namespace" "" . }}
{{- $stays := and $found (not (dig "metadata" "deletionTimestamp" "" $found)) }}
{{- if or (not $asks) (eq . $.Release.Namespace) $stays }}{{ $present = append $present . }}{{ end }}
{{- end }}
{{- $present | toJson }}
{{- end }}

{{/* The names of the Secrets with which images are pulled, with commas between them. */}}
{{- define "barnabas.pullSecrets" -}}
{{- range $at, $each := .Values.imagePullSecrets }}{{ if $at }},{{ end }}{{ $each.name }}{{ end }}
{{- end }}

{{/* The plurals of all kinds of resources, as a JSON list: each has its definition in the chart. */}}
{{- define "barnabas.kinds" -}}
{{- $kinds := list }}
{{- range $path, $_ := .Files.Glob "crd-files/*.yaml" }}
{{- $crd := $.Files.Get $path | fromYaml }}
{{- if and (eq $crd.kind "CustomResourceDefinition") (eq (dig "spec" "group" "" $crd) "barnabas.dev") }}{{ $kinds = append $kinds $crd.spec.names.plural }}{{ end }}
{{- end }}
{{- $kinds | toJson }}
{{- end }}

{{/* What the operator may do in a namespace that it watches. */}}
{{- define "barnabas.rules" -}}
{{- $kinds := include "barnabas.kinds" . | fromJsonArray -}}
- apiGroups: [barnabas.dev]
  resources: [{{ range $at, $kind := $kinds }}{{ if $at }}, {{ end }}{{ $kind }}/status{{ end }}]
  verbs: [get, patch]
- apiGroups: [barnabas.dev]
  resources: [{{ range $at, $kind := $kinds }}{{ if $at }}, {{ end }}{{ $kind }}/finalizers{{ end }}]
  verbs: [update]
- apiGroups: [barnabas.dev]
  resources: [maintenancejobs]
  verbs: [delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, create, patch, delete]
- apiGroups: [internal.barnabas.dev]
  resources: [statedocuments]
  verbs: [deletecollection]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [deletecollection]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: [barnabas-broker, barnabas-maintenance-driver, barnabas-maintenance-starter]
  verbs: [bind]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, create, patch, delete]
{{- end }}

{{- define "barnabas.subject" -}}
- kind: ServiceAccount
  name: {{ include "barnabas.operator" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
