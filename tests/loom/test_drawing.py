"""Drawings: well formed, readable in color, gray and words, and always the same."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET

import pypdf
import pytest
import torch
import triton
import triton.language as tl
import typst

from loom.drawing import DARK, LIGHT, Canvas, dark_style, figure, pipeline, strip
from loom.kernels import KernelError
from loom.trace import trace

SVG = "{http://www.w3.org/2000/svg}"
PROGRAMS = [f"p{n}" for n in range(8)]


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + (n - 1 - offs), x, mask=mask)


@triton.jit
def tile_kernel(x_ptr, M, N, sm, sn, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.load(x_ptr + m[:, None] * sm + n[None, :] * sn, mask=mask)


@triton.jit
def sum_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offs), 0))


@triton.jit
def odd_kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.load(x_ptr + offs, mask=offs % 2 == 1)


def reverse_drawing(n=10, **options):
    made = trace(
        reverse_kernel,
        (triton.cdiv(n, 4),),
        x_ptr=torch.arange(float(n)),
        out_ptr=torch.zeros(n),
        n=n,
        BLOCK=4,
    )
    return made.draw(**options)


def tile_drawing(x, **options):
    M, N = x.shape
    grid = (triton.cdiv(M, 2), triton.cdiv(N, 2))
    made = trace(
        tile_kernel, grid, x_ptr=x, M=M, N=N, sm=x.stride(0), sn=x.stride(1), BLOCK=2
    )
    return made.draw(**options)


def examples():
    return {
        "reverse": reverse_drawing(),
        "tile": tile_drawing(torch.arange(15.0).reshape(5, 3).T, values=True),
        "pipeline": pipeline(["TTIR", ("PTX", "text"), "SASS"], labels=["a", "b"]),
        "strip": strip("abc", [0, None, 1], title="T", desc="D"),
    }


def classes(element) -> list[str]:
    return (element.get("class") or "").split()


def texts(drawing) -> list[str]:
    return [e.text or "" for e in ET.fromstring(drawing.svg).iter(f"{SVG}text")]


def cells(drawing) -> dict[str, ET.Element]:
    """The cells of a drawing by their tip, without the program part."""
    found = {}
    for rect in ET.fromstring(drawing.svg).iter(f"{SVG}rect"):
        tip = rect.find(f"{SVG}title")
        if tip is not None and tip.text:
            found[tip.text] = rect
    return found


def dashed(found: dict[str, ET.Element]) -> set[str]:
    """The names of the cells that are no elements."""
    every = {t.partition(":")[0]: e for t, e in found.items()}
    return {name for name, e in every.items() if e.get("stroke-dasharray")}


# --- what every drawing must be -------------------------------------------------------


def test_well_formed_named_and_self_contained():
    for name, drawing in examples().items():
        root = ET.fromstring(drawing.svg)
        assert root.tag == f"{SVG}svg", name
        assert "loom-svg" in classes(root)
        assert root.get("role") == "img"
        ids = {e.get("id"): e for e in root.iter() if e.get("id")}
        labels = (root.get("aria-labelledby") or "").split()
        assert len(labels) == 2
        assert ids[labels[0]].tag == f"{SVG}title"
        assert ids[labels[1]].tag == f"{SVG}desc"
        assert all((ids[label].text or "").strip() for label in labels)
        assert "<style" not in drawing.svg
        assert not re.search(r"(href|src)=|url\((?!#)", drawing.svg)
        for used in re.findall(r"url\(#([^)]+)\)", drawing.svg):
            assert used in ids
        assert drawing._repr_svg_() == drawing.svg


def test_ids_differ_between_drawings():
    every = [re.findall(r' id="([^"]+)"', d.svg) for d in examples().values()]
    flat = list(itertools.chain(*every))
    assert len(flat) == len(set(flat))


def test_same_input_same_bytes():
    first, second = examples(), examples()
    assert {n: d.svg for n, d in first.items()} == {n: d.svg for n, d in second.items()}


def test_every_color_has_a_class_and_both_themes_define_it():
    assert set(LIGHT) == set(DARK)
    names = {value: name for name, value in LIGHT.items()}
    for drawing in examples().values():
        for element in ET.fromstring(drawing.svg).iter():
            fill, stroke = element.get("fill"), element.get("stroke")
            if fill and fill.startswith("#"):
                assert names[fill] in classes(element)
            if stroke and stroke.startswith("#"):
                assert {"grid", "hatch"} & set(classes(element))
    style = dark_style("[data-theme=dark]")
    for name in LIGHT:
        assert f"[data-theme=dark] .loom-svg .{name} {{" in style


def test_nothing_stands_outside_the_card():
    for name, drawing in examples().items():
        root = ET.fromstring(drawing.svg)
        width, height = float(root.get("width")), float(root.get("height"))
        for rect in root.iter(f"{SVG}rect"):
            right = float(rect.get("x", 0)) + float(rect.get("width"))
            bottom = float(rect.get("y", 0)) + float(rect.get("height"))
            assert right <= width and bottom <= height, name
        for text in root.iter(f"{SVG}text"):
            long = len(text.text or "") * float(text.get("font-size")) * 0.602
            start = float(text.get("x"))
            start -= {"start": 0, "middle": long / 2, "end": long}[
                text.get("text-anchor")
            ]
            assert start >= -10 and start + long <= width - 10, (name, text.text)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = map(linear, parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_contrast_is_aa(theme):
    for name in [*PROGRAMS, "paper"]:
        assert contrast(theme["ink"], theme[name]) >= 4.5, name
    assert contrast(theme["muted"], theme["paper"]) >= 4.5
    assert contrast(theme["grid"], theme["paper"]) >= 3


# simulation of missing cones on linear RGB (Viénot, Brettel and Mollon, 1999)
VISION = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deutan": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def seen(color: str, vision: str) -> tuple[float, float, float]:
    """CIE Lab of a color as someone with this vision sees it."""
    raw = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    rgb = list(map(linear, raw))
    rgb = [
        max(0.0, sum(w * c for w, c in zip(row, rgb, strict=True)))
        for row in VISION[vision]
    ]
    matrix = (
        (0.4124, 0.3576, 0.1805),
        (0.2126, 0.7152, 0.0722),
        (0.0193, 0.1192, 0.9505),
    )
    xyz = [sum(w * c for w, c in zip(row, rgb, strict=True)) for row in matrix]
    white = (0.9505, 1.0, 1.089)
    f = [
        (v / w) ** (1 / 3) if v / w > 0.008856 else 7.787 * v / w + 16 / 116
        for v, w in zip(xyz, white, strict=True)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_neighboring_programs_differ_for_every_eye(theme, vision):
    for one, other in itertools.pairwise([*PROGRAMS, "p0"]):
        a, b = seen(theme[one], vision), seen(theme[other], vision)
        distance = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
        assert distance >= 12, (one, other)


# --- a trace, drawn -------------------------------------------------------------------


def test_cells_name_their_program_in_color_and_in_text():
    drawing = reverse_drawing()
    found = cells(drawing)
    for i in range(10):
        tip = f"x_ptr[{i}]: touched by program {i // 4}"
        assert f"p{i // 4}" in classes(found[tip])
        writer = (9 - i) // 4
        tip = f"out_ptr[{i}]: touched by program {writer}"
        assert f"p{writer}" in classes(found[tip])
    words = texts(drawing)
    assert words.count("p0") == words.count("p1") == 8
    assert words.count("p2") == 8  # four live lanes and four masked ones


def test_masked_lanes_outside_are_hatched_dashed_and_struck():
    drawing = reverse_drawing()
    found = cells(drawing)
    outside = {"x_ptr[10]", "x_ptr[11]", "out_ptr[-1]", "out_ptr[-2]"}
    assert dashed(found) == outside
    root = ET.fromstring(drawing.svg)
    hatched = [r for r in root.iter(f"{SVG}rect") if "url(" in r.get("fill", "")]
    assert len(hatched) == 4 + 1  # and the legend's
    struck = [e for e in root.iter(f"{SVG}line") if e.get("stroke") == LIGHT["muted"]]
    assert len(struck) == 4
    assert {"−1", "−2", "10", "11"} <= set(texts(drawing))
    desc = root.find(f"{SVG}desc").text
    assert "Elements read from x_ptr: program 0: 0 to 3; program 1: 4 to 7;" in desc
    assert "Masked lanes outside it: 10, 11." in desc


def test_a_masked_lane_past_a_rows_end_is_not_the_next_rows_cell():
    drawing = tile_drawing(torch.arange(15.0).reshape(3, 5))
    found = cells(drawing)
    for i, j in itertools.product(range(3), range(5)):
        tip = f"x_ptr[{i}, {j}]: touched by program {i // 2},{j // 2}"
        assert f"p{i // 2 + 2 * (j // 2)}" in classes(found[tip])
    outside = dashed(found)
    assert outside == {f"x_ptr[{i}, 5]" for i in range(4)} | {
        f"x_ptr[3, {j}]" for j in range(6)
    }


def test_a_masked_lane_inside_is_hatched_but_not_struck():
    made = trace(odd_kernel, (1,), x_ptr=torch.zeros(4), BLOCK=4)
    drawing = made.draw()
    found = cells(drawing)
    assert "x_ptr[0]: masked in program 0" in found
    assert "x_ptr[1]: touched by program 0" in found
    assert "masked, not touched" in texts(drawing)
    assert not [e for e in found.values() if e.get("stroke-dasharray")]


def test_a_cell_of_several_programs_is_split():
    made = trace(
        sum_kernel, (6,), x_ptr=torch.ones(24), out_ptr=torch.zeros(1), BLOCK=4
    )
    drawing = made.draw("out_ptr", values=True)
    rects = ET.fromstring(drawing.svg).iter(f"{SVG}rect")
    tips = [(r, r.find(f"{SVG}title")) for r in rects]
    bands = [r for r, t in tips if t is not None and t.text.startswith("out_ptr[0]")]
    assert [classes(b)[0] for b in bands] == ["p0", "p1", "p2", "p3"]
    assert "p0 1 2 +3" in texts(drawing)
    assert "24" in texts(drawing)


def test_an_expanded_tensor_colors_every_cell_of_its_one_element():
    drawing = tile_drawing(torch.arange(2.0).expand(3, 2))
    tip = "x_ptr[2, 1]: touched by program 0,0, 1,0"
    assert tip in cells(drawing)


def test_untouched_cells_are_plain_and_more_than_eight_programs_keep_their_numbers():
    made = trace(
        reverse_kernel,
        (9,),
        x_ptr=torch.arange(40.0),
        out_ptr=torch.zeros(40),
        n=36,
        BLOCK=4,
    )
    drawing = made.draw("x_ptr", columns=10)
    found = cells(drawing)
    assert classes(found["x_ptr[39]"])[0] == "paper"
    assert "p0" in classes(found["x_ptr[32]: touched by program 8"])
    assert texts(drawing).count("p8") == 4
    assert "program 7, and so on" in texts(drawing)


def test_layout_columns_and_wrong_options():
    def size(drawing):
        root = ET.fromstring(drawing.svg)
        return float(root.get("width")), float(root.get("height"))

    side, stack = reverse_drawing(layout="side"), reverse_drawing(layout="stack")
    assert size(side)[0] > size(stack)[0] and size(side)[1] < size(stack)[1]
    assert size(reverse_drawing(columns=10))[1] < size(side)[1]
    with pytest.raises(KernelError, match="accepted are 'side' and 'stack'"):
        reverse_drawing(layout="row")
    with pytest.raises(KernelError, match="columns: got 0"):
        reverse_drawing(columns=0)
    with pytest.raises(KernelError, match="at most 1,024 are drawn"):
        reverse_drawing(n=1025)
    with pytest.raises(KernelError, match="touched none of"):
        reverse_drawing(op="atomic")


# --- the rest -------------------------------------------------------------------------


def test_text_is_escaped():
    canvas = Canvas("a < b & c", 'say "no"')
    canvas.text(0, 10, "x < y && z")
    root = ET.fromstring(canvas.finish().svg)
    assert root.find(f"{SVG}title").text == "a < b & c"
    assert [e.text for e in root.iter(f"{SVG}text")] == ["x < y && z"]


def test_pipeline_has_its_stages_in_order_and_wraps():
    drawing = pipeline(["TTIR", "TTGIR", "LLVM IR", "PTX", "SASS"])
    assert texts(drawing) == ["TTIR", "TTGIR", "LLVM IR", "PTX", "SASS"]
    assert len(list(ET.fromstring(drawing.svg).iter(f"{SVG}polygon"))) == 4
    narrow = ET.fromstring(pipeline(["a stage"] * 8, width=300).svg)
    assert float(narrow.get("width")) <= 320


def test_typst_sets_a_drawing_with_its_own_fonts(tmp_path):
    for name, drawing in examples().items():
        drawing.save(tmp_path / f"{name}.svg")
        source = tmp_path / f"{name}.typ"
        source.write_text(f'#set page(width: auto)\n#image("{name}.svg")')
        pdf = typst.compile(str(source), format="pdf", ignore_system_fonts=True)
        page = pypdf.PdfReader(io.BytesIO(pdf)).pages[0]
        printed = re.sub(r"\s", "", page.extract_text())
        fonts = str(page["/Resources"])
        for word in texts(drawing):
            assert re.sub(r"\s", "", word) in printed, fonts


def test_a_plot_is_the_same_bytes_each_time():
    def plot():
        made = figure(width=4, height=2)
        made.axes.plot([1, 2, 3], [3, 1, 2], label="one")
        made.axes.legend()
        return made.svg

    assert plot() == plot()
    assert "<dc:date>" not in plot()
    assert 'width="288pt" height="144pt"' in plot()
