"""A schema registry with the parts of Confluent's REST API that its clients use."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.support.protobuf_cases import proto_text


class SchemaRegistry:
    """Serves on loopback in a thread; schemas are kept in memory, and nothing is compared.

    Args:
        login: `user:password` that requests must have.
    """

    def __init__(self, login: str = "") -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failures = 0
        """Requests that get status 500 from now on."""
        self.login = base64.b64encode(login.encode()).decode() if login else ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Add a version; the id of its schema, the same for an equal one."""
        schema = _as_text(schema)
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a request."""
        parts = [unquote(each) for each in urlsplit(path).path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                at = int(number) - 1
                if at < len(self.schemas):
                    return 200, self.schemas[at]
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                at = len(versions) if version == "latest" else int(version)
                if 0 < at <= len(versions):
                    return 200, self._version(subject, at)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body)}
            case "POST", ["subjects", subject]:
                body = _as_text(body)
                if subject in self.subjects and body in self.schemas:
                    known = self.schemas.index(body) + 1
                    return 200, self._version(subject, self.subjects[subject].index(known) + 1)
            case _:
                pass
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        found = self.schemas[number - 1]
        return {"subject": subject, "version": version, "id": number, "guid": str(number), **found}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self, method: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                registry.requests.append(f"{method} {self.path}")
                status: int
                found: dict[str, Any]
                if registry.failures:
                    registry.failures -= 1
                    status, found = 500, {"error_code": 50001, "message": "Error in the store"}
                elif registry.login not in self.headers.get("Authorization", ""):
                    status, found = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, found = registry.answer(method, self.path, body)
                sent = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _as_text(schema: dict[str, Any]) -> dict[str, Any]:
    """A Protobuf schema as text, which Confluent's clients register as a descriptor in base64."""
    if schema.get("schemaType") != "PROTOBUF" or "{" in schema["schema"]:
        return schema
    file = FileDescriptorProto.FromString(base64.b64decode(schema["schema"]))
    return schema | {"schema": proto_text(file)}
