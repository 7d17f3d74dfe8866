"""Configuration files of the embedded broker. Pure: text from parameters."""

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

NODE_ID = 1


def server_properties(
    *, log_dir: Path, host: str, port: int, controller_port: int, extra: Mapping[str, str]
) -> str:
    """`server.properties` of one node that is broker and controller; `extra` wins."""
    config = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
        # a client's slip must not make a topic
        "auto.create.topics.enable": "false",
        # one node: nothing can have a second replica
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # few files and little memory, so that it starts in seconds on a laptop
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        # nobody waits for members that do not come, nor for the dead
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        **extra,
    }
    return "".join(f"{name}={_escape_property(value)}\n" for name, value in config.items())


def log4j_xml(log_file: Path) -> str:
    """`log4j2.xml`: warnings and the few lines that tell the broker's life, in a rolling file."""
    path = escape(str(log_file), {'"': "&quot;"})
    return f"""<Configuration status="ERROR" shutdownHook="disable"><Appenders>
<RollingFile name="file" fileName="{path}" filePattern="{path}.%i">
<PatternLayout pattern="%d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %-5p %c{{1}} %m%n"/>
<Policies><SizeBasedTriggeringPolicy size="10 MB"/></Policies><DefaultRolloverStrategy max="3"/>
</RollingFile></Appenders><Loggers>
<Root level="WARN"><AppenderRef ref="file"/></Root>
<Logger name="kafka" level="INFO"/><Logger name="org.apache.kafka.server" level="INFO"/>
<Logger name="org.apache.kafka.coordinator" level="INFO"/>
</Loggers></Configuration>
"""


def _escape_property(value: str) -> str:
    """A backslash or a line break would mean something else in a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
