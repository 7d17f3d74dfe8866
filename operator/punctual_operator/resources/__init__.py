"""What should exist in the cluster for a Scheduler: whole objects, ready to apply. Pure."""
