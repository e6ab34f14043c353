"""Chapters are read in threads, and Python's parser does not expect that."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from loom import syntax

SOURCE = "\n".join(f"def f{i}(x):\n    return [x + {i} * (x - 1)]" for i in range(300))


def test_many_threads_parse_at_once():
    expected = ast.dump(ast.parse(SOURCE))
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(syntax.parse, [SOURCE] * 60))
    assert all(ast.dump(tree) == expected for tree in trees[:3])
    assert len(trees) == 60


def test_it_is_ast_parse():
    assert ast.dump(syntax.parse("x", mode="eval")) == ast.dump(
        ast.parse("x", mode="eval")
    )
    with pytest.raises(SyntaxError):
        syntax.parse("x = ")
