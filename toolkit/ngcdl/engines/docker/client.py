"""The SDK's client without any keys: ngcdl itself looks up the one key that a pull needs, and passes it to the engine.

The stock client reads all keys in config.json before its first call, and fails if any of them is broken.
"""

from __future__ import annotations

from typing import Any

from ngcdl.engines.docker import context, keys, messages


def client(version: str, timeout: int) -> Any:
    """Create a docker.APIClient for the engine that docker's configuration names. Raise EngineAbsent, or what the SDK
    raises."""
    from docker import APIClient
    from docker.errors import APIError, DockerException
    from docker.tls import TLSConfig

    class Keyless(APIClient):
        @property
        def _general_configs(self) -> dict[str, Any]:
            """The part of config.json that the SDK sees: neither the keys nor the proxies, which ngcdl's requests
            already contain (proxies.py).

            If this dictionary is empty, the SDK reads the file again. Otherwise it searches the values for keys until
            one is a string: so the first value is always a string.
            https://github.com/docker/docker-py/blob/7.2.0/docker/auth.py
            """
            return self._taken

        @_general_configs.setter
        def _general_configs(self, read: object) -> None:
            headers = read.get("HttpHeaders") if isinstance(read, dict) else None
            self._taken = {"detachKeys": keys.named()} | ({"HttpHeaders": headers} if isinstance(headers, dict) else {})

        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            """As requests does it, but the engine's own CA comes before REQUESTS_CA_BUNDLE, which names a company's.
            https://github.com/docker/docker-py/issues/2433"""
            chosen = self.verify if verify is None else verify
            return super().merge_environment_settings(url, proxies, stream, chosen, cert)

        def _raise_for_status(self, response: Any) -> None:
            """As the SDK does it, which takes any JSON for the engine's own. What stands in front of an engine, as a
            proxy that forbids some requests, has a form of its own, or sends a page."""
            try:
                super()._raise_for_status(response)  # type: ignore[misc]  # the SDK has no type annotations
            except (KeyError, TypeError) as error:
                raise APIError(str(error), response, response.text) from error
            except APIError as error:
                text = response.text.strip()
                is_told = error.explanation != text  # in JSON, as Docker tells what it does not have
                if text.startswith("<") or (response.status_code == 404 and not is_told):
                    # not as NotFound: others do not know what Docker has
                    raise APIError(str(error), response, messages.of_page(response.status_code, text)) from error
                raise

    tls: TLSConfig | bool = False
    if found := context.tls():
        ca, certificate, key = (str(found.folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        tls = TLSConfig(client_cert=(certificate, key) if found.has_own else None, ca_cert=ca, verify=found.verifies)
    try:
        return Keyless(context.named(), version=version, timeout=timeout, tls=tls)
    except ValueError as error:  # urllib's, of an address such as tcp://[::1
        raise DockerException(str(error)) from error
