{{/* The chart's name, as in labels. */}}
{{- define "metacontroller.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of most objects. */}}
{{- define "metacontroller.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "metacontroller.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "metacontroller.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "metacontroller.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Immutable in a StatefulSet: not to be changed, whatever it says. */}}
{{- define "metacontroller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "metacontroller.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "metacontroller.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "metacontroller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{/* Values that are left from Metacontroller's release may name another program, or lack what only this chart has. */}}
{{- define "metacontroller.check" -}}
{{- if regexMatch "^((ghcr|docker)[.]io/)?metacontroller(io)?/metacontroller$" .Values.image.repository }}
{{- fail (printf "image.repository is %q, Metacontroller's image, and this chart runs metahook: remove image from your values, or name metahook's image; in place of --reuse-values take --reset-then-reuse-values" .Values.image.repository) }}
{{- end }}
{{- if not (and .Values.crds .Values.moduleCache) }}
{{- fail "crds or moduleCache is missing from the values, because they are those of another chart's release: in place of --reuse-values take --reset-then-reuse-values" }}
{{- end }}
{{- end }}

{{- define "metacontroller.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "metacontroller.podSecurityContext" -}}
{{- if .Values.podSecurityContext }}
{{- toYaml .Values.podSecurityContext }}
{{- else -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- end }}

{{- define "metacontroller.securityContext" -}}
{{- if .Values.securityContext }}
{{- toYaml .Values.securityContext }}
{{- else -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
{{- end }}

{{- define "metacontroller.resources" -}}
{{- if .Values.resources }}
{{- toYaml .Values.resources }}
{{- else -}}
requests:
  cpu: 50m
  memory: 64Mi
# The server's budgets follow it: see --memory-budget and --cache-budget.
limits:
  memory: 2Gi
{{- end }}
{{- end }}

{{/* The port of --metrics-address; empty where metrics are off. The last one counts. */}}
{{- define "metacontroller.metricsPort" -}}
{{- $port := "9999" }}
{{- range .Values.commandArgs }}
{{- if regexMatch "^--?metrics-address=" . }}
{{- $port = regexFind "[0-9]+$" . }}
{{- end }}
{{- end }}
{{- if ne $port "0" }}{{ $port }}{{ end }}
{{- end }}

{{/* The arguments, with a folder for compiled modules and the address of `metahook explain` unless they name them. */}}
{{- define "metacontroller.args" -}}
{{- $named := false }}
{{- $inspected := false }}
{{- range .Values.commandArgs }}
{{- if regexMatch "^--?module-cache-dir(=|$)" . }}{{ $named = true }}{{ end }}
{{- if regexMatch "^--?inspection-address(=|$)" . }}{{ $inspected = true }}{{ end }}
{{- end }}
{{- $args := .Values.commandArgs }}
{{- if and .Values.moduleCache.enabled (not $named) }}
{{- /* Not the volume itself: a folder that only the server's user may enter, which it makes there. */}}
{{- $args = append $args "--module-cache-dir=/var/cache/metahook/modules" }}
{{- end }}
{{- if not $inspected }}
{{- $args = append $args "--inspection-address=127.0.0.1:9797" }}
{{- end }}
{{- toYaml $args }}
{{- end }}

{{/* "true" where the arguments ask for leader election. */}}
{{- define "metacontroller.electsLeader" -}}
{{- if regexMatch "--?leader-election( |=true|$)" (join " " .Values.commandArgs) }}true{{ end -}}
{{- end }}
