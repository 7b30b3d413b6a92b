"""ngcdl.registry.trust: certificate files that can't be read. test_wire covers whom a session trusts."""

from __future__ import annotations

import pytest

from ngcdl.errors import BadOption
from ngcdl.registry import trust


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_that_is_not_there_is_said(tmp_path, variable):
    with pytest.raises(BadOption, match=variable):
        trust.session({variable: str(tmp_path / "absent.pem")})


def test_a_ca_file_that_is_none_is_said(tmp_path):
    (tmp_path / "empty.pem").touch()
    for path in (tmp_path / "absent.pem", tmp_path / "empty.pem", tmp_path):
        with pytest.raises(BadOption, match="NGCDL_CA_FILE"):
            trust.session({"NGCDL_CA_FILE": str(path)})
