"""Makes an authority of our own, and the certificates that it has signed for a server and for a client."""

from pathlib import Path
from typing import NamedTuple

import trustme


class Certificates(NamedTuple):
    """Files in PEM format. Each certificate's file and its key's file are apart."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """A new authority each time, so those of two folders are strangers to each other."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(*(folder / f"{field.replace('_', '-')}.pem" for field in Certificates._fields))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(made.authority)
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("client@example.org")
    for leaf, certificate, key in ((server, made.server, made.server_key), (client, made.client, made.client_key)):
        leaf.cert_chain_pems[0].write_to_path(certificate)
        leaf.private_key_pem.write_to_path(key)
        key.chmod(0o600)
    return made
