# SPDX-License-Identifier: MIT
"""backend/index.yaml: the gallery's entries agree with each other, and with the images that the build matrix makes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.packaging.shell import ROOT

NAME = "vllm-nnrp"
REGISTRY = "quay.io/go-skynet/local-ai-backends:"
MIRROR = "localai/localai-backends:"
CAPABILITIES = {
    "nvidia", "nvidia-cuda-12", "nvidia-cuda-13", "nvidia-l4t", "nvidia-l4t-cuda-12", "nvidia-l4t-cuda-13", "amd",
    "intel", "vulkan", "cpu", "metal", "default",
}  # fmt: skip
GALLERY: dict[str, dict[str, Any]] = {
    entry["name"]: entry for entry in yaml.safe_load((ROOT / "backend/index.yaml").read_text(encoding="utf-8"))
}
MATRIX: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "contrib/localai/texts/backend-matrix.yml").read_text(encoding="utf-8")
)
IMAGES = [name for name, entry in GALLERY.items() if "uri" in entry]


def test_every_entry_goes_by_our_alias() -> None:
    assert {entry["alias"] for entry in GALLERY.values()} == {NAME}


def test_the_meta_entry_and_its_development_twin_name_images_that_are_there() -> None:
    stable, development = GALLERY[NAME]["capabilities"], GALLERY[f"{NAME}-development"]["capabilities"]
    assert set(stable) <= CAPABILITIES
    assert {key: f"{name}-development" for key, name in stable.items()} == development
    assert {*stable.values(), *development.values()} == set(IMAGES)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_at_its_registry_and_at_the_mirror(name: str) -> None:
    uri, channel = GALLERY[name]["uri"], "master" if name.endswith("-development") else "latest"
    assert uri.startswith(f"{REGISTRY}{channel}-")
    assert GALLERY[name]["mirrors"] == [uri.replace(REGISTRY, MIRROR)]


def test_listed_is_what_the_matrix_builds_and_nothing_else() -> None:
    suffixes = {entry["tag-suffix"] for entry in MATRIX}
    for channel in "latest", "master":
        tags = {GALLERY[name]["uri"].removeprefix(REGISTRY) for name in IMAGES}
        assert {tag.removeprefix(channel) for tag in tags if tag.startswith(channel)} == suffixes


def test_the_matrix_builds_our_folder_with_the_python_dockerfile() -> None:
    for entry in MATRIX:
        assert (entry["backend"], entry["dockerfile"]) == (NAME, "./backend/Dockerfile.python")
        assert entry["base-image"] == "ubuntu:24.04", "package.sh brings what runs on this C library or a newer one"
