"""The operator: from a `Scheduler` resource to topics, workers and a status that tells."""
