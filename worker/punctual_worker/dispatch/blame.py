"""Who is to blame when Kafka refuses a delivery: one message, its destination, or neither. Pure."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, Message

from punctual_worker.contract.codes import Code
from punctual_worker.dispatch.deliveries import DESTINATION, KEY, VALUE, Delivery, entry_of
from punctual_worker.dispatch.destinations import Fault
from punctual_worker.dispatch.entries import Entry

_OF_ONE_MESSAGE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
}
_OF_A_TOPIC: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
UNCLEAR: Final = {
    *_OF_A_TOPIC,
    *_OF_ONE_MESSAGE,
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
}
"""Where the report names no culprit, or names everybody: a destination is to blame only if it
was alone in the transaction."""
CLEAR: Final = _OF_A_TOPIC | _OF_ONE_MESSAGE
"""What a delivery report says of the very topic or message it is about."""


def fault(error: KafkaError, message: Message, deliveries: Iterable[Delivery]) -> Fault:
    """The fault that a delivery report tells of."""
    topic = str(message.topic())
    culprit = _find(message, deliveries) if error.code() in _OF_ONE_MESSAGE else None
    return topic_fault(topic, error)._replace(action_key=None if culprit is None else culprit.key)


def topic_fault(topic: str, error: KafkaError) -> Fault:
    """The fault of a destination that was alone in a failed transaction."""
    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001
    code = Code.UNKNOWN_DESTINATION if error.code() in unknown else Code.DELIVERY_FAILED
    return Fault(topic, code, f"x-scheduler-deliver-to {topic!r}: {error.str()}")


def _find(message: Message, deliveries: Iterable[Delivery]) -> Entry | None:
    """The entry behind a failed record; compared by content, as this happens rarely."""
    for delivery in deliveries:
        if (
            delivery[DESTINATION] == message.topic()
            and delivery[KEY] == message.key()
            and delivery[VALUE] == message.value()
        ):
            return entry_of(delivery)
    return None
