"""Real data beside the repository, or where KERASBERT_DATA says."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data(repository):
    folder = Path(os.environ.get("KERASBERT_DATA", repository.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.fail(f"These tests need a folder of real data. Received: KERASBERT_DATA={folder}, which does not exist.")
    return folder
