{{/*
The alerts, without what all of them have in common (templates/prometheusrule.yaml adds that).
Worth waking up for is what loses time or messages now (critical); the rest can wait for the morning.
*/}}
{{- define "punctual.alerts" -}}
{{- $thresholds := .Values.metrics.prometheusRule.thresholds }}
{{- $by := "by (namespace, scheduler)" }}
{{- $byPartition := "by (namespace, scheduler, partition)" }}
{{- $scheduler := "Scheduler {{ $labels.namespace }}/{{ $labels.scheduler }}" }}
- alert: PunctualMessagesOverdue
  expr: sum {{ $by }} (punctual_overdue) > {{ $thresholds.overdueMessages }}
  for: 5m
  severity: critical
  summary: Messages should have been delivered and were not
  description: >-
    {{ $scheduler }} has {{ "{{ $value }}" }} messages that are more than a second late, for five
    minutes. Look at its dispatchers and at the Kafka cluster.
- alert: PunctualDeliveriesLate
  expr: >-
    histogram_quantile(0.99,
    sum by (namespace, scheduler, le) (rate(punctual_lateness_seconds_bucket[10m])))
    > {{ $thresholds.latenessSeconds }}
  for: 10m
  severity: warning
  summary: Messages arrive later than they should
  description: >-
    {{ $scheduler }}: one of 100 messages was {{ "{{ $value | humanizeDuration }}" }} late or more, for
    ten minutes. If its dispatchers are busy, more of them help, or more CPU.
# Those that somebody served in the last six hours, less those that somebody serves now. A Scheduler
# that was deleted has no pods (`up`) any more and is left out.
- alert: PunctualPartitionWithoutDispatcher
  expr: >-
    (count {{ $by }} (max {{ $byPartition }}
    (max_over_time(punctual_dispatcher_state{state="active"}[6h])) == 1)
    - (count {{ $by }} (max {{ $byPartition }} (punctual_dispatcher_state{state="active"}) == 1)
    or 0 * count {{ $by }} (max_over_time(punctual_dispatcher_state[6h])))) > 0
    and on (namespace, scheduler) group {{ $by }} (up{scheduler!=""})
  for: 5m
  severity: critical
  summary: Nobody delivers a part of the messages
  description: >-
    {{ $scheduler }} has {{ "{{ $value }}" }} partitions that no dispatcher serves, for five minutes.
    Messages in these wait until one takes over.
- alert: PunctualCheckpointLost
  expr: max {{ $byPartition }} (punctual_dispatcher_state{state="checkpoint-lost"}) == 1
  for: 1m
  severity: critical
  summary: A dispatcher does not know how far it had come
  description: >-
    {{ $scheduler }} lost the checkpoint of partition {{ "{{ $labels.partition }}" }} and does not
    guess. Somebody has to decide: see on-lost-checkpoint.
- alert: PunctualDeliveriesFailing
  expr: sum by (namespace, scheduler, reason) (rate(punctual_delivery_failures_total[15m])) > 0
  for: 30m
  severity: warning
  summary: Messages cannot be delivered to their destination
  description: >-
    {{ $scheduler }} has failing deliveries for half an hour ({{ "{{ $labels.reason }}" }}). A
    destination topic may be missing or forbidden.
- alert: PunctualIntakeLagging
  expr: sum {{ $by }} (punctual_intake_lag_records) > {{ $thresholds.intakeLagRecords }}
  for: 10m
  severity: warning
  summary: Requests are taken in slower than they come
  description: >-
    {{ $scheduler }} has {{ "{{ $value }}" }} requests that are not taken in, for ten minutes.
- alert: PunctualIntakeMissing
  expr: group {{ $by }} (punctual_pending) unless group {{ $by }} (punctual_intake_lag_records)
  for: 5m
  severity: critical
  summary: No requests are taken in
  description: >-
    {{ $scheduler }} has dispatchers but no intake, for five minutes. What is pending is delivered;
    new requests wait.
# A few rejections are somebody's slip; a share of all requests is somebody's deployment.
- alert: PunctualRejectionsRising
  expr: >-
    sum {{ $by }} (rate(punctual_rejections_total[15m]))
    / (sum {{ $by }} (rate(punctual_rejections_total[15m]))
    + (sum {{ $by }} (rate(punctual_requests_total[15m]))
    or 0 * sum {{ $by }} (rate(punctual_rejections_total[15m]))))
    > {{ $thresholds.rejectedShare }}
    and sum {{ $by }} (increase(punctual_rejections_total[15m])) > 10
  for: 15m
  severity: warning
  summary: Many requests are rejected
  description: >-
    {{ $scheduler }} rejects {{ "{{ $value | humanizePercentage }}" }} of its requests, for fifteen
    minutes. The rejections topic and the console say why.
- alert: PunctualSchedulerNotReady
  expr: sum(punctual_operator_schedulers{ready="False"}) > 0
  for: 15m
  severity: warning
  summary: A Scheduler is not ready
  description: >-
    {{ "{{ $value }}" }} Schedulers are not ready, for fifteen minutes. kubectl get schedulers -A says
    which, and why.
- alert: PunctualOperatorFailing
  expr: sum(increase(punctual_operator_reconciles_total{result="failed"}[10m])) > 0
  for: 15m
  severity: warning
  summary: The operator cannot do what a Scheduler asks for
  description: >-
    Reconciles have been failing for fifteen minutes. The conditions of the Schedulers and the
    operator's log say why; running workers go on.
- alert: PunctualOperatorMissing
  expr: absent(punctual_operator_leading == 1)
  for: 5m
  severity: warning
  summary: No operator is active
  description: >-
    For five minutes no replica of the operator held the Lease. Running workers go on; changes of
    Schedulers wait.
{{- end }}
