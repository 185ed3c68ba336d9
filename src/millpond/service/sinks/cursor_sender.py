"""What sinks have in common whose receiver keeps the cursor of the last delivery itself.

Such a receiver takes the changes of a delivery and its cursor in one transaction. So a delivery
whose outcome is unknown is settled by reading the cursor again, and each change arrives once.

INV-SINK-1: the changes of a delivery and its cursor are committed together or not at all.
INV-SINK-2: a delivery is committed only by a sender that has taken the sink over, and has read the
    cursor after that: a process that stood still while another took over commits nothing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError
from millpond.service.sinks.sender import Delivery, DeliveryError


@dataclass(frozen=True)
class Delivered:
    """The last delivery that a receiver has; number 0 before the first."""

    number: int = 0
    cursor: str = ""


class CursorSender(ABC):
    """A sender that reads the cursor from its receiver before it delivers.

    A kind of sink says what its receiver is called, how it is taken over, what one transaction
    does, and what an error of its client means.

    Attributes:
        receivers: What the sinks deliver to, as in "clients may not have sinks to Kafka".
        receiver: What the store may be older than, as in "older than the topic".
    """

    receivers: str
    receiver: str

    def __init__(self, is_confined: bool) -> None:
        """Prepare; nothing is connected to yet.

        Args:
            is_confined: Whether the sink is a client's, who may have none of this kind.
        """
        self._is_confined = is_confined
        self._is_interrupted = threading.Event()
        #: The client's connection, from taking the sink over until something fails.
        self._connection: Any = None
        self._last = Delivered()

    def send(self, delivery: Delivery) -> None:
        """Commit a delivery, unless the receiver has it already.

        Raises:
            DeliveryError: as `Sender.send`; final if another process has taken the sink over, or if
                the cursor is gone, or ahead of this store.
        """
        if self._is_confined:
            raise DeliveryError(f"clients may not have sinks to {self.receivers}", is_final=True)
        identity, number = delivery.identity, delivery.number
        try:
            self._load_client()
            if self._connection is None:
                self._last = self._take_over(identity)
                self._check_cursor(identity, number, delivery)
            mark = self._mark(delivery.cursor)
            if self._last.number and self._last.cursor == mark:
                return
            self._commit(identity, delivery, number)
            self._last = Delivered(number, mark)
        except BaseException as error:
            self.close()
            if isinstance(error, MillpondError):
                said = f"{error.primary}: {error.detail}" if error.detail else error.primary
                raise DeliveryError(said) from error
            if (explained := self._explain(error)) is not None:
                raise explained from None
            raise

    def interrupt(self) -> None:
        """Have `send` fail soon."""
        self._is_interrupted.set()

    def close(self) -> None:
        """Let go of the connection; nobody ever sees what it had begun and not committed."""
        connection, self._connection, self._last = self._connection, None, Delivered()
        if connection is not None:
            self._disconnect(connection)

    # -- what a kind of sink says ----------------------------------------------------------------

    @abstractmethod
    def _load_client(self) -> None:
        """Import the client's package.

        Raises:
            MillpondError: it is not installed.
        """

    @abstractmethod
    def _take_over(self, identity: str) -> Delivered:
        """Set `_connection`, so that no earlier one of this sink commits any more.

        Returns:
            The last delivery that the receiver has, as read after that.
        """

    @abstractmethod
    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        """Commit changes and cursor in one transaction, if `_last` is the last one still."""

    @abstractmethod
    def _explain(self, error: BaseException) -> DeliveryError | None:
        """Return what an error of the client means; None for another's error."""

    @abstractmethod
    def _disconnect(self, connection: Any) -> None:
        """Close a connection."""

    @abstractmethod
    def _say_cursor_gone(self, identity: str, delivery: Delivery) -> str | None:
        """Return what to say where a cursor should be and is none; None if that does no harm."""

    def _mark(self, cursor: str) -> str:
        """Return what the receiver keeps of a cursor: the cursor, unless it has no place for it."""
        return cursor

    def _is_of(self, incarnation: str, last: Delivered) -> bool:
        """Whether the last delivery was made by a store of this incarnation, or may have been.

        A store that was restored is another one: what the receiver has taken since the backup is
        not this store's, whichever numbers its own deliveries have come to by being tried again.
        """
        return last.cursor.startswith(f"{incarnation}.")

    # -- for them --------------------------------------------------------------------------------

    def _stop_if_interrupted(self) -> None:
        if self._is_interrupted.is_set():
            raise DeliveryError("the pond is being closed")

    def _check_cursor(self, identity: str, number: int, delivery: Delivery) -> None:
        """Refuse to go on where receiver and store do not fit.

        Raises:
            DeliveryError: final.
        """
        last = self._last
        if not last.number:
            said = self._say_cursor_gone(identity, delivery) if number > 1 else None
            if said is not None:
                raise DeliveryError(said, is_final=True)
        elif last.cursor == self._mark(delivery.cursor):
            return
        elif last.number >= number or (
            last.number > delivery.received and not self._is_of(delivery.incarnation, last)
        ):
            raise DeliveryError(
                f"the {self.receiver} has delivery {last.number} of {identity}, and this store "
                f"knows of {delivery.received} only: it is older than the {self.receiver}",
                is_final=True,
            )
        elif last.number < delivery.filled:
            raise DeliveryError(
                f"the {self.receiver} has delivery {last.number} of {identity} and none behind it, "
                f"and it has taken delivery {delivery.filled} once: it is older than this store",
                is_final=True,
            )
