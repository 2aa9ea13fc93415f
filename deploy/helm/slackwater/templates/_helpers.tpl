{{- define "slackwater.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "slackwater.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "slackwater.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "slackwater.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slackwater.selector" -}}
app.kubernetes.io/name: {{ include "slackwater.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "slackwater.labels" -}}
{{ include "slackwater.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "slackwater.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "slackwater.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "slackwater.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "slackwater.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What every pod has in common. enableServiceLinks: Kubernetes would set SLACKWATER_PORT=tcp://… for a service named slackwater. */}}
{{- define "slackwater.podBasics" -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The database, and the settings that users name. */}}
{{- define "slackwater.settings" -}}
- name: SLACKWATER_LOG__FORMAT
  value: json
{{- range $name, $value := .Values.config }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* Settings of the service and its drivers. */}}
{{- define "slackwater.env" -}}
- name: SLACKWATER_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "database.existingSecret: name a secret that holds the URL of the database" .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
- name: SLACKWATER_STATE_URL
  value: {{ required "state.url: name the object store that holds the state of queries, such as s3://bucket/prefix" .Values.state.url }}
{{- with .Values.secretKey.existingSecret }}
- name: SLACKWATER_SECRET_KEY
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.secretKey.key }}
{{- end }}
{{- if .Values.connections.filesSecret }}
- name: SLACKWATER_SECRETS_DIR
  value: /etc/slackwater/secrets
{{- end }}
{{- if .Values.service.ksqlPort }}
- name: SLACKWATER_KSQL_PORT
  value: {{ .Values.service.ksqlPort | quote }}
{{- end }}
{{- range $name, $value := .Values.state.env }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- /* The service has to know them too: a new query has a task for each core of a driver. */}}
- name: SLACKWATER_SPARK__MASTER
  value: local[{{ .Values.drivers.cores }}]
- name: SLACKWATER_SPARK__SHUFFLE_PARTITIONS
  value: {{ .Values.drivers.cores | quote }}
{{ include "slackwater.settings" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "slackwater.envFrom" -}}
{{- with .Values.state.existingSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- with .Values.connections.envSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A tenth of the cache's volume is for logs and Spark's own files. */}}
{{- define "slackwater.driverEnv" -}}
- name: SLACKWATER_SPARK__DRIVER_MEMORY
  value: {{ .Values.drivers.heap }}
- name: SLACKWATER_SPARK__WORKER_MEMORY
  value: {{ .Values.drivers.workerMemory }}
- name: SLACKWATER_DRIVER__STOP_TIMEOUT_MS
  value: {{ mul .Values.drivers.stopTimeoutSeconds 1000 | quote }}
- name: SLACKWATER_STATE_CACHE_BYTES
  value: {{ div (mul (include "slackwater.gibibytes" .Values.drivers.cache.size | int) 1073741824 9) 10 | quote }}
{{- end -}}

{{- define "slackwater.gibibytes" -}}
{{- if hasSuffix "Ti" . -}}
{{- mul (trimSuffix "Ti" . | int) 1024 -}}
{{- else -}}
{{- trimSuffix "Gi" . | int -}}
{{- end -}}
{{- end -}}

{{- define "slackwater.mounts" -}}
- name: data
  mountPath: /home/slackwater/data
- name: tmp
  mountPath: /tmp
{{- if .Values.connections.filesSecret }}
- name: secrets
  mountPath: /etc/slackwater/secrets
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "slackwater.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- with .Values.connections.filesSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods go, and that those of one kind go to different hosts where they can. Given a list: root, kind, its values. */}}
{{- define "slackwater.scheduling" -}}
{{- $root := index . 0 -}}{{- $kind := index . 1 -}}{{- $values := index . 2 -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "slackwater.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $kind }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
