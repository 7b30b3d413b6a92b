"""nvcr.io on the loopback: its token protocol, its refusals and all kinds of faults, in front of a plain
docker-registry.

    python ngc_registry --upstream REGISTRY.sock --accounts ACCOUNTS.json --faults FAULTS.json --log REQUESTS.jsonl
        [--port N] [--cdn-port N] [--ready FILE]

Listens on 127.0.0.1:PORT (the registry) and 127.0.0.2:CDN_PORT (the target of blob redirects). Port 0 takes a free one;
both are printed as JSON, or written to FILE. A test that needs its own faults starts its own front: several can share
one docker-registry. Permissions and ACCOUNTS.json are described in tokens.py, FAULTS.json in faults.py, REQUESTS.jsonl
in front.py.
"""

from __future__ import annotations

import argparse
import json
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

from faults import Faults
from front import CdnHandler, Front, Handler
from storage import Storage
from tokens import Tokens


def main() -> None:
    parser = argparse.ArgumentParser(description="nvcr.io on the loopback")
    for name in ("upstream", "accounts", "faults", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, default=5443)
    parser.add_argument("--cdn-port", type=int, default=5444)
    parser.add_argument("--ready")
    options = parser.parse_args()
    tokens = Tokens(json.loads(Path(options.accounts).read_text()))
    front = Front(Storage(options.upstream), tokens, Faults(Path(options.faults)), Path(options.log))
    registry = listen("127.0.0.1", options.port, Handler, front)
    cdn = listen("127.0.0.2", options.cdn_port, CdnHandler, front)
    front.port, front.cdn_port = registry.server_address[1], cdn.server_address[1]
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    ready = json.dumps({"port": front.port, "cdn_port": front.cdn_port})
    if options.ready:
        Path(options.ready + ".draft").write_text(ready)
        Path(options.ready + ".draft").replace(options.ready)
    else:
        print(ready, flush=True)
    registry.serve_forever()


def listen(address: str, port: int, handler: type[Handler], front: Front) -> ThreadingHTTPServer:
    """Bind the port, or a free one if it is taken or 0; return the server."""
    try:
        server = ThreadingHTTPServer((address, port), handler)
    except OSError:
        server = ThreadingHTTPServer((address, 0), handler)
    server.daemon_threads = True
    server.front = front  # type: ignore[attr-defined]
    return server


if __name__ == "__main__":
    main()
