{{/* Names and labels, and what several templates share. */}}

{{- define "punctual.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's if that is not in it; room for the longest suffix. */}}
{{- define "punctual.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" }}
{{- else if contains (include "punctual.name" .) .Release.Name }}
{{- .Release.Name | trunc 46 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "punctual.name" .) | trunc 46 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "punctual.operatorName" -}}
{{- printf "%s-operator" (include "punctual.fullname" .) }}
{{- end }}

{{- define "punctual.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "punctual.operatorName" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: wanted, because serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* What never changes, by which pods are found. */}}
{{- define "punctual.selectorLabels" -}}
app.kubernetes.io/name: {{ include "punctual.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "punctual.labels" -}}
{{ include "punctual.selectorLabels" . }}
app.kubernetes.io/part-of: punctual
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* An image by digest, else by tag, else by the chart's version; takes (dict "image" … "root" .). */}}
{{- define "punctual.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{/* What the operator may do where it looks after Schedulers: see docs/kubernetes.md. */}}
{{- define "punctual.operatorRules" -}}
# Schedulers: to follow them, to set and remove the finalizer, to say how they are
- apiGroups: [punctual.dev]
  resources: [schedulers]
  verbs: [get, list, watch, patch]
- apiGroups: [punctual.dev]
  resources: [schedulers/status]
  verbs: [get, patch]
- apiGroups: [punctual.dev]
  resources: [schedulers/finalizers]
  verbs: [update]
# what a Scheduler becomes
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# credentials that a Scheduler names, one by one: no list, no watch
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# addresses of the workers' metrics, and why one does not start
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "punctual.operatorSubject" -}}
- kind: ServiceAccount
  name: {{ include "punctual.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What the chart adds to the metadata of a custom resource definition. */}}
{{- define "punctual.crdMetadata" -}}
{{ "  labels:" }}
{{- include "punctual.labels" . | nindent 4 }}
{{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
{{- end }}
{{- end }}
