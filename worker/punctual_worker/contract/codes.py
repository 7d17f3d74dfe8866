"""Rejection codes, as they stand in the `x-scheduler-error-code` header."""

from enum import StrEnum


class Code(StrEnum):
    """Why a request was not, or not any more, carried out."""

    UNKNOWN_ACTION = "unknown-action"
    UNKNOWN_HEADER = "unknown-header"
    MISSING_DELIVER_TO = "missing-deliver-to"
    MISSING_DELIVER_AT = "missing-deliver-at"
    MISSING_REQUEST_ID = "missing-request-id"
    INVALID_DELIVER_AT = "invalid-deliver-at"
    INVALID_DELAY = "invalid-delay"
    INVALID_CRON = "invalid-cron"
    INVALID_TIMEZONE = "invalid-timezone"
    INVALID_DELIVER_TO = "invalid-deliver-to"
    INVALID_DELIVER_PARTITION = "invalid-deliver-partition"
    INVALID_EXPIRES_AT = "invalid-expires-at"
    INVALID_SPREAD = "invalid-spread"
    INVALID_REQUEST_ID = "invalid-request-id"
    CONFLICTING_TIMES = "conflicting-times"
    DELIVER_AT_TOO_FAR = "deliver-at-too-far"
    DESTINATION_NOT_ALLOWED = "destination-not-allowed"
    TOO_LARGE = "too-large"
    NOT_UTF8 = "not-utf8"
    # from the dispatcher
    REQUEST_ID_IN_USE = "request-id-in-use"
    UNKNOWN_DESTINATION = "unknown-destination"
    DELIVERY_FAILED = "delivery-failed"
    EXPIRED = "expired"
