"""What a wheel says about its licence, and whether that is permissive."""

from __future__ import annotations

import re
import zipfile
from email.message import Message
from email.parser import HeaderParser

import msgspec

_COPYLEFT = re.compile(
    r"\b(?:[AL]?GPL|GNU|MPL|Mozilla|EUPL|EPL|Eclipse|CDDL|CeCILL|CC[- ]BY[- ](?:SA|NC|ND)|SSPL|BUSL|Commons Clause"
    r"|proprietary|commercial)",
    re.IGNORECASE,
)
_PERMISSIVE = re.compile(
    r"\b(?:MIT|BSD|0BSD|Apache|ISC|PSF|Python[ -]Software[ -]Foundation|Unlicense|CC0|Zlib|ZPL|Zope Public|BSL-1\.0"
    r"|HPND)\b|\bBSD|\bApache",
    re.IGNORECASE,
)
_PERMISSIVE_TEXTS = (
    ("MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("BSD", "Redistribution and use in source and binary forms, with or without modification"),
    ("Apache-2.0", "Apache License Version 2.0"),
    ("ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"),
)


class Metadata(msgspec.Struct, frozen=True):
    """Version and licence of a wheel; the licence is the shortest name that its metadata gives."""

    version: str
    licence: str
    is_permissive: bool


def read_metadata(archive: zipfile.ZipFile) -> Metadata:
    """Read a wheel's core metadata: the licence expression, else its classifiers, else the free text, else the file."""
    names = archive.namelist()
    path = next((name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)), None)
    if path is None:
        return Metadata("", "unknown", False)
    headers = HeaderParser().parsestr(archive.read(path).decode("utf-8", "replace"))
    licence = _declared(headers)
    if licence == "unknown":
        licence = _from_files(archive, [name for name in names if ".dist-info/" in name])
    return Metadata(str(headers["Version"] or ""), licence, is_permissive(licence))


def is_permissive(licence: str) -> bool:
    """Say whether a licence name or SPDX expression lets anyone reuse the code; of `A OR B` one is enough."""
    return any(
        all(_is_permissive_term(term) for term in re.split(r"\bAND\b|,|;|\bWITH\b.*", choice) if term.strip(" ()"))
        for choice in re.split(r"\bOR\b|\|", licence)
        if choice.strip(" ()")
    )


def _is_permissive_term(term: str) -> bool:
    return _PERMISSIVE.search(term) is not None and _COPYLEFT.search(term) is None


def _declared(headers: Message) -> str:
    if expression := headers["License-Expression"]:
        return str(expression).strip()
    classifiers = [str(value) for value in headers.get_all("Classifier", []) if str(value).startswith("License ::")]
    names = [value.split(" :: ")[-1] for value in classifiers]
    if names := [name for name in names if name != "OSI Approved"]:
        return ", ".join(names)
    text = " ".join(str(headers["License"] or "").split())
    # Some packages put the whole licence text here; it is recognised like a licence file.
    return _recognise(text) if len(text) > 100 else text or "unknown"


def _from_files(archive: zipfile.ZipFile, names: list[str]) -> str:
    texts = [name for name in names if re.search(r"/(?:licen[cs]e|copying)[^/]*$", name, re.IGNORECASE)]
    found = [_recognise(archive.read(name).decode("utf-8", "replace")) for name in texts]
    return ", ".join(sorted(set(found))) or "unknown"


def _recognise(text: str) -> str:
    flat = " ".join(text.split())
    if _COPYLEFT.search(flat[:300]):
        return "unknown"
    return next((name for name, sentence in _PERMISSIVE_TEXTS if sentence in flat), "unknown")
