"""A real mail server on loopback, which keeps what it is told and fails where a test wants it to."""

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from server.db import now


@dataclass
class Taken:
    """One e-mail that the server took."""

    sender: str
    receiver: str
    message: EmailMessage
    encrypted: bool
    user: str


@dataclass
class MailServer:
    """What tests see and change of the mail server."""

    port: int = 0
    taken: list[Taken] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # by receiver: what RCPT is answered
    connections: int = 0
    password: str = ""  # of anybody; empty: nobody needs to log in
    hangs_up: bool = False  # instead of taking a message

    def to(self, receiver: str) -> list[EmailMessage]:
        return [mail.message for mail in self.taken if mail.receiver == receiver]


@contextmanager
def mail_server(*, certificate: Path | None = None) -> Iterator[MailServer]:
    """Yield a running mail server; with a certificate it offers STARTTLS."""
    state = MailServer()
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)

    class Conversation(_Conversation):
        server_state, tls = state, context

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        server.daemon_threads = True
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class _Conversation(socketserver.StreamRequestHandler):
    server_state: MailServer
    tls: ssl.SSLContext | None

    def handle(self) -> None:
        self.server_state.connections += 1
        self.sender = self.receiver = self.user = ""
        self.encrypted = False
        self.say("220 test")
        with suppress(OSError):  # the other side left
            while line := self.rfile.readline().decode().rstrip("\r\n"):
                verb, _, rest = line.partition(" ")
                if not self.answer(verb.upper(), rest):
                    break

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def answer(self, verb: str, rest: str) -> bool:
        acts: dict[str, Any] = {"EHLO": self.hello, "STARTTLS": self.start_tls, "AUTH": self.log_in, "DATA": self.take}
        if verb in acts:
            return acts[verb](rest) is not False
        if verb == "MAIL":
            self.sender = _address(rest)
        elif verb == "RCPT":
            self.receiver = _address(rest)
            self.say(self.server_state.refused.get(self.receiver, "250 ok"))
            return True
        self.say("221 bye" if verb == "QUIT" else "250 ok")
        return verb != "QUIT"

    def hello(self, _rest: str) -> None:
        offers = ["test", "8BITMIME", "AUTH PLAIN", *(["STARTTLS"] if self.tls and not self.encrypted else [])]
        for offer in offers[:-1]:
            self.say(f"250-{offer}")
        self.say(f"250 {offers[-1]}")

    def start_tls(self, _rest: str) -> None:
        assert self.tls is not None
        self.say("220 go")
        self.request = self.tls.wrap_socket(self.request, server_side=True)
        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", buffering=0)
        self.encrypted = True

    def log_in(self, rest: str) -> None:
        _nothing, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
        right = password == self.server_state.password
        self.user = user if right else ""
        self.say("235 welcome" if right else "535 wrong password")

    def take(self, _rest: str) -> bool:
        if self.server_state.hangs_up:
            return False
        if self.server_state.password and not self.user:
            self.say("530 log in first")
            return True
        self.say("354 go on")
        lines = iter(self.rfile.readline, b".\r\n")
        content = b"".join(line.removeprefix(b".") if line.startswith(b"..") else line for line in lines)
        message: Any = message_from_bytes(content, policy=default)
        self.server_state.taken.append(Taken(self.sender, self.receiver, message, self.encrypted, self.user))
        self.say("250 taken")
        return True

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


def make_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1 with its key into one file, and return that."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() - timedelta(hours=1))
        .not_valid_after(now() + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def _address(rest: str) -> str:
    return rest.partition("<")[2].partition(">")[0]
