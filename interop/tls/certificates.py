"""Throw-away certificates."""

import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """A CA of its own; its certificate is at `path`."""

    def __init__(self, directory, name):
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = self._sign(name, self._key, True, [])
        self.path = directory / f"{name}-ca.pem"
        self.path.write_bytes(made)

    def certificate(self, host):
        """The path of a new key and a certificate for `host`, in one file."""
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([x509.DNSName(host), address])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._write(host, [names, usage])

    def client(self, name, age=0):
        """The same for a client, made so many days ago for one day."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._write(name, [usage], age)

    def _write(self, host, extensions, age=0):
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._sign(host, key, False, extensions, age)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        path = self._directory / f"{self._name}-{host}.pem"
        path.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()) + made)
        return path

    def _sign(self, subject, key, is_ca, extensions, age=0):
        def name(text):
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.now(UTC) - timedelta(days=age)
        builder = x509.CertificateBuilder(
            issuer_name=name(self._name + " CA"),
            subject_name=name(self._name + " CA" if is_ca else subject),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(days=1),
        )
        builder = builder.add_extension(x509.BasicConstraints(is_ca, None), True)
        for extension in extensions:
            builder = builder.add_extension(extension, False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def fingerprint(path):
    """The SHA-256 hash of the certificate in a file, as `certificate_sha256` has it."""
    made = x509.load_pem_x509_certificate(path.read_bytes())
    return hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()
