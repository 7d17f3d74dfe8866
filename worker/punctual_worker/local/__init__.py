"""Everything on one machine: Java, jars, the embedded broker, all parts together."""
