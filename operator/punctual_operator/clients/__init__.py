"""The outside: Kubernetes, Kafka, the workers' metrics. Nothing else in the operator does I/O."""
