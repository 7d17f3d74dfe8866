"""What can go wrong, and the condition reason that each becomes.

    OperatorError
    ├── InvalidSpecError
    ├── SecretNotFoundError, SecretKeyMissingError
    ├── KafkaError
    │   └── KafkaUnreachableError, AuthenticationFailedError, AuthorizationFailedError
    ├── ConflictError
    ├── NameTakenError
    └── KubernetesError
        └── NotFoundError, ChangedError

Messages are sentences for the person who owns the Scheduler. They go into its status and events,
so nothing that was read from a Secret may ever be in one.
"""

from typing import ClassVar


class OperatorError(Exception):
    """Anything that a condition can tell."""

    reason: ClassVar[str] = "InternalError"


class InvalidSpecError(OperatorError):
    """The spec contradicts itself in a way that the schema does not see."""

    reason = "InvalidSpec"


class SecretNotFoundError(OperatorError):
    """A Secret that the spec names is not there."""

    reason = "SecretNotFound"


class SecretKeyMissingError(OperatorError):
    """A Secret is there, but not the entry."""

    reason = "SecretKeyMissing"


class KafkaError(OperatorError):
    """Kafka did not do as told."""

    reason = "KafkaError"


class KafkaUnreachableError(KafkaError):
    """No broker answers."""

    reason = "KafkaUnreachable"


class AuthenticationFailedError(KafkaError):
    """The brokers do not take the credentials or certificates."""

    reason = "AuthenticationFailed"


class AuthorizationFailedError(KafkaError):
    """The user may not do that."""

    reason = "AuthorizationFailed"


class ConflictError(OperatorError):
    """An older Scheduler has the app id on this Kafka cluster."""

    reason = "AppIdConflict"


class NameTakenError(OperatorError):
    """An object that is not ours has the name of a child."""

    reason = "NameTaken"


class KubernetesError(OperatorError):
    """The API server refused, or did not answer."""

    reason = "ApiError"


class NotFoundError(KubernetesError):
    """There is no such object (any more)."""


class ChangedError(KubernetesError):
    """Somebody else was faster: look again before writing."""
