"""The certificate of a server: its files are read again when they change, as after a renewal."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from millpond.api.rights.token_file import look_at

log = logging.getLogger("millpond.server")


class CertificateFiles:
    """The files of a certificate and its key, and whether they have changed."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert, self._key = cert, key
        self._seen = self._look()

    def reload(self, context: ssl.SSLContext) -> None:
        """Have new connections of a context get the files' certificate if the files have changed.

        Files that do not fit each other, as while only one of them has been replaced, change
        nothing: the server goes on with what it has, says so, and tries again at the next change.
        """
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            # A context that fails to load a key has lost the one before.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            context.load_cert_chain(self._cert, self._key)
        except OSError as error:  # SSLError is one
            reason = error.strerror or str(error)
            log.warning('the certificate "%s" is not taken: %s', self._cert, reason)
        else:
            log.info('new connections get the new certificate "%s"', self._cert)

    def _look(self) -> tuple[object, object]:
        return look_at(self._cert), look_at(self._key)
