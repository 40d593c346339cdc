"""Figures of reproductions follow Student and Welch; the page and its charts say what the records hold, and no more."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from vitlab.report.charts import apart
from vitlab.reproduce import charts, words
from vitlab.reproduce.drawing import scale
from vitlab.reproduce.figures import missing, table, verdict
from vitlab.reproduce.page import summary, write_page
from vitlab.reproduce.plan import Claim, Reproduction, Variant
from vitlab.sample import Difference, Sample, difference, of_pairs, student

SVG = "{http://www.w3.org/2000/svg}"


def run(seed: int, accuracy: float, epochs: int = 4, **changes: object) -> dict:
    course = [accuracy * (1 - 0.5**epoch) + 0.001 * seed for epoch in range(1, epochs + 1)]
    return {
        "seed": seed,
        "test_accuracy": accuracy,
        "count": 10000,
        "train_accuracy": accuracy - 0.01,
        "train_seconds": 12.0,
        "compile_seconds": 0.0,
        "epochs": epochs,
        "images_per_second": 1000.0,
        "parameters": 44000,
        "curve": {"epoch": list(range(1, epochs + 1)), "accuracy": course, "loss": [2.3 - value for value in course]},
    } | changes


def entry(variant: Variant, accuracies: list[float], **changes: object) -> dict:
    return {
        "name": variant.name,
        "group": variant.group,
        "settings": list(variant.settings),
        "together": len(accuracies),
        "device": "a test's device",
        "date": "2026-11-15T14:00:00+00:00",
        "versions": {"vitlab": "0.1.0", "torch": "2.11"},
        "runs": [run(seed, accuracy) for seed, accuracy in enumerate(accuracies)],
    } | changes


def record(name: str, entries: list[dict], small: bool = False) -> dict:
    return {"name": name, "command": f"vitlab reproduce {name}", "small": small, "config": {}, "variants": entries}


AS_WRITTEN = Variant("as written", reported=0.9065)
LOGITS = Variant("logits", ("output=logits",), "no softmax before the loss")
SCALE = Variant("head scale", ("attention.scale=head",))
WORSE = Variant("no norm", ("norm=none",))
SHALLOW = Reproduction("R1", "A shallow ViT", "Softmax twice.", (AS_WRITTEN, LOGITS, SCALE, WORSE))
MEASURED = {
    "as written": [0.900, 0.905, 0.910],
    "logits": [0.950, 0.951, 0.952],
    "head scale": [0.902, 0.906, 0.908],
    "no norm": [0.800, 0.805, 0.801],
}


def shallow(*names: str) -> dict:
    chosen = names or tuple(MEASURED)
    return record("r1-shallow", [entry(one, MEASURED[one.name]) for one in SHALLOW.variants if one.name in chosen])


def written(tmp_path: Path, *pairs: tuple[Reproduction, dict | None]) -> str:
    """The page of these plans and records; the pictures lie beside it in tmp_path/docs/reports."""
    records, page = tmp_path / "records", tmp_path / "docs" / "reports.md"
    records.mkdir(exist_ok=True)
    page.parent.mkdir(exist_ok=True)
    plans = {}
    for index, (plan, content) in enumerate(pairs):
        name = content["name"] if content else f"r9-{index}"
        plans[name] = plan
        if content:
            (records / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    write_page(plans, records, page)
    return page.read_text(encoding="utf-8").replace(words.SPACE, " ")


def picture(tmp_path: Path, name: str) -> ElementTree.Element:
    return ElementTree.parse(tmp_path / "docs" / "reports" / name).getroot()


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def lines(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [path for path in root.iter(f"{SVG}path") if path.get("class") == "line"]


TABLE = [(1, 12.7062), (2, 4.3027), (4, 2.7764), (10, 2.2281), (30, 2.0423), (120, 1.9799), (math.inf, 1.9600)]


@pytest.mark.parametrize(("freedom", "quantile"), TABLE)
def test_students_quantiles_are_those_of_the_printed_table(freedom: float, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, abs=6e-5)


def test_students_quantiles_at_other_levels() -> None:
    """From printed tables: two-sided 99 % and 99.9 %, where t is far from the normal's."""
    for level, freedom, quantile in ((0.99, 1, 63.657), (0.99, 10, 3.1693), (0.999, 1, 636.619), (0.999, 4, 8.6103)):
        assert student(freedom, level) == pytest.approx(quantile, rel=2e-5)
    assert of_pairs(2) == 0.95
    assert of_pairs(5) == pytest.approx(0.995)


def test_students_quantiles_between_whole_degrees_of_freedom() -> None:
    """P(|T| ≤ t) from the density itself, integrated by the trapezoid rule, is 0.95 for fractions too."""
    for freedom in (1.3, 2.5, 7.77):
        places = np.linspace(-student(freedom), student(freedom), 200_001)
        constant = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
        density = constant * (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
        area = (density[1:] + density[:-1]).sum() / 2 * (places[1] - places[0])
        assert area == pytest.approx(0.95, abs=1e-7)


def test_a_mean_and_its_interval() -> None:
    sample = Sample((0.90, 0.91, 0.95))
    values = np.array(sample.values)
    assert sample.mean == pytest.approx(values.mean())
    assert sample.margin == pytest.approx(4.302653 * values.std(ddof=1) / np.sqrt(3), rel=1e-6)
    assert sample.margin_of_one_more == pytest.approx(2 * sample.margin)  # √(1 + 1/3) is 2 · √(1/3)


def test_one_seed_has_no_interval_and_none_is_refused() -> None:
    assert Sample((0.9,)).margin is None
    assert math.isnan(Sample((0.9, math.nan)).margin)
    assert difference(Sample((0.9,)), Sample((0.5, 0.6))) == Difference(0.9 - 0.55, None)
    assert difference(Sample((0.9,)), Sample((0.5,))).sign == 0
    assert words.accuracy(Sample((0.9,))).replace(words.SPACE, " ") == "90.00 % (one seed)"
    with pytest.raises(ValueError, match="at least one"):
        Sample(())


def test_welch_worked_by_hand() -> None:
    """1, 2, 3 has v = 1/3; 2, 4, 6, 8 has v = 5/3: ν = 4 / (1/18 + 25/27) = 216/53, t between those of 4 and 5."""
    found = difference(Sample((1.0, 2.0, 3.0)), Sample((2.0, 4.0, 6.0, 8.0)))
    assert found.value == pytest.approx(-3)
    assert found.margin is not None
    assert found.margin / math.sqrt(2) == pytest.approx(student(216 / 53))
    assert 2.5706 < found.margin / math.sqrt(2) < 2.7764
    assert found.sign == 0  # 3 is less than 1.414 · 2.76


def test_welch_of_equal_samples_is_the_pooled_test() -> None:
    first, second = Sample((0.90, 0.92, 0.94)), Sample((0.80, 0.82, 0.84))
    found = difference(first, second)
    assert found.margin == pytest.approx(2.776445 * 0.02 * math.sqrt(2 / 3), rel=1e-6)
    assert (found.sign, difference(second, first).sign) == (1, -1)


def test_identical_figures_divide_by_nothing() -> None:
    same, other = Sample((0.1135,) * 5), Sample((0.98,) * 5)
    assert same.margin == 0
    assert difference(same, same) == Difference(0.0, 0.0)
    assert difference(same, same).sign == 0
    assert difference(other, same).sign == 1
    assert difference(Sample((0.98, 0.98)), Sample((0.97, 0.975, 0.98))).margin == pytest.approx(
        4.302653 * 0.005 / math.sqrt(3), rel=1e-6
    )


def test_rows_follow_the_plan_and_compare_with_the_first_of_their_group() -> None:
    plan = Reproduction("R4", "Groups", "", (Variant("a", group="x"), Variant("b", group="x"), Variant("a", group="y")))
    entries = [entry(one, [0.5 + 0.1 * place, 0.52 + 0.1 * place]) for place, one in enumerate(plan.variants)]
    entries[1] |= {"together": 1}
    rows = table(plan, record("r4-groups", entries[::-1]))
    assert [(row.group, row.name) for row in rows] == [("x", "a"), ("x", "b"), ("y", "a")]
    assert [row.difference is None for row in rows] == [True, False, True]
    assert rows[1].difference is not None
    assert rows[1].difference.value == pytest.approx(0.1)
    assert [row.seconds for row in rows] == [12, 24, 12]  # seconds of runs that share the device, shared out
    assert missing(plan, rows[1:]) == [plan.variants[0]]


def test_a_row_without_its_base_has_no_difference(tmp_path) -> None:
    rows = table(SHALLOW, shallow("logits", "no norm"))
    assert [row.difference for row in rows] == [None, None]
    page = written(tmp_path, (SHALLOW, shallow("logits", "no norm")))
    assert "Not run yet: *as written* and *head scale*." in page
    assert "Better than" not in page


@pytest.mark.parametrize(
    ("better", "worse", "word"),
    [
        ("logits", ("as written", "no norm"), "confirmed"),
        ("as written", ("no norm", "logits"), "refuted"),
        ("as written", ("no norm", "head scale"), "not settled by these seeds"),
        ("as written", ("no norm", "absent"), "not run yet"),
        ("as written", ("logits", "absent"), "refuted"),
        ("absent", ("logits",), "not run yet"),
    ],
)
def test_verdicts(better: str, worse: tuple[str, ...], word: str) -> None:
    assert verdict(Claim("", better, worse), table(SHALLOW, shallow())).word == word


def test_one_rival_of_several_that_is_ahead_by_chance_refutes_nothing() -> None:
    names, own = ("a", "b", "c", "d"), (0.50, 0.51, 0.52)
    lead = 1.02 * difference(Sample(own), Sample(own)).margin
    shifts = (0.0, lead, -0.1, -0.1)
    rows = [
        SimpleNamespace(name=name, group="", accuracy=Sample(tuple(value + shift for value in own)))
        for name, shift in zip(names, shifts, strict=True)
    ]
    assert verdict(Claim("", "a", ("b",)), rows).word == "refuted"
    several = verdict(Claim("", "a", ("b", "c", "d")), rows)
    assert several.word == "not settled by these seeds"
    assert several.differences["b"].sign == -1, "its own interval leaves out 0"
    assert verdict(Claim("", "a", ("c", "d")), rows).word == "confirmed"


def test_a_claim_is_judged_within_its_group() -> None:
    low, high = Variant("a", group="1 %"), Variant("a", group="100 %")
    other, another = Variant("b", group="1 %"), Variant("b", group="100 %")
    plan = Reproduction("R2", "", "", (low, other, high, another))
    rows = table(
        plan,
        record(
            "r2-x",
            [
                entry(one, values)
                for one, values in zip(
                    plan.variants, ([0.8, 0.81], [0.5, 0.51], [0.9, 0.91], [0.98, 0.99]), strict=True
                )
            ],
        ),
    )
    assert verdict(Claim("", "a", ("b",), "1 %"), rows).word == "confirmed"
    assert verdict(Claim("", "a", ("b",), "100 %"), rows).word == "refuted"


def test_the_page_says_what_the_intervals_allow(tmp_path) -> None:
    page = written(tmp_path, (SHALLOW, shallow()))
    assert re.search(r"\| \*\*as written\*\* \| 90\.65 % \| 90\.50 ± 1\.24 % \|  \| 89\.50 % \| 44,000 \|", page)
    assert re.search(r"\*\*logits\*\*: no softmax before the loss<br>`output=logits` \|", page)
    assert "Its figure lies inside our interval." in page
    assert re.search(r"Better than \*as written\*: \*\*logits\*\* \+4\.60 ± 1\.\d\d points\.", page)
    assert re.search(r"\*\*Worse\*\* than \*as written\*: \*\*no norm\*\* −10\.30 ± ", page)
    assert re.search(r"No clear difference to \*as written\* \(the interval includes 0\): head scale \+0\.03 ± ", page)
    assert "Highest is *logits*" in page
    assert (
        "36 s" not in page
    )  # three runs that share a device for 12 seconds each take 12 of its seconds, 48 over four variants
    assert "48 s of training on a test's device, 3 runs at a time, 2026-11-15" in page
    assert "`vitlab reproduce r1-shallow`" in page
    assert "(../records/r1-shallow.json)" in page
    assert "12 runs, 3 seeds a variant" in page
    assert "torch 2.11, vitlab 0.1.0" in page
    assert "mall version" not in page


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (0.9160, "inside our interval"),
        (0.9280, "one more run of ours could well give it"),
        (0.9900, "further than our seeds explain"),
        (0.8000, "further than our seeds explain"),
    ],
)
def test_a_reported_figure_is_inside_near_or_far(reported: float, expected: str) -> None:
    """0.900, 0.905, 0.910: the mean is 0.905 ± 0.0124, and one more run is expected at ± 0.0248."""
    plan = Reproduction("R1", "", "", (Variant("as written", reported=reported),))
    (row,) = table(plan, record("x", [entry(plan.variants[0], MEASURED["as written"])]))
    said = words.against_the_report(row)
    assert expected in said
    assert ("above" in said) == (reported > 0.92)
    assert ("below" in said) == (reported < 0.9)


def test_a_small_record_says_so_at_the_top_and_in_its_section(tmp_path) -> None:
    content = shallow()
    content["small"] = True
    page = written(tmp_path, (SHALLOW, content))
    assert page.splitlines()[2].startswith("**Small versions, whose figures say nothing of the reports: `r1-shallow`")
    assert page.count("**Small version: ") == 1
    assert "**(small version)**" in page


def test_one_seed_is_told_apart(tmp_path) -> None:
    content = record("r1-shallow", [entry(one, MEASURED[one.name][:1]) for one in SHALLOW.variants])
    page = written(tmp_path, (SHALLOW, content))
    assert "90.00 % (one seed)" in page
    assert "with one seed there is no interval" in page
    assert "Against *as written*, without an interval because there is one seed: logits +5.00 points" in page
    assert "**+5.00" not in page
    assert "Better than" not in page
    assert not [path for path in picture(tmp_path, "r1-shallow-accuracy.svg").iter() if path.get("class") == "interval"]


def test_what_is_not_run_or_no_longer_planned_is_named(tmp_path) -> None:
    content = shallow("as written", "logits")
    content["variants"] += [entry(Variant("old idea"), [0.5, 0.6]), entry(SCALE, [])]
    planned = Reproduction("R4", "Depth", "To be run.", (Variant("depth 2"),))
    page = written(tmp_path, (SHALLOW, content), (planned, None))
    assert "Not run yet: *head scale* and *no norm*." in page
    assert "also has *old idea*" in page
    assert "*Not run yet:* `vitlab reproduce r9-1`" in page
    assert "not run yet" in texts(picture(tmp_path, "r1-shallow-accuracy.svg"))
    assert len(lines(picture(tmp_path, "r1-shallow-course.svg"))) == 2


def test_the_same_records_give_the_same_bytes(tmp_path) -> None:
    plan = Reproduction("R2", SHALLOW.title, SHALLOW.reading, SHALLOW.variants)
    folders = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, (plan, shallow()))
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        folders.append({path.relative_to(tmp_path / name).as_posix(): path.read_bytes() for path in files})
    assert folders[0] == folders[1]
    assert {name.rpartition("/")[2] for name in folders[0] if "docs/reports/" in name} == {
        "r1-shallow-accuracy.svg",
        "r1-shallow-course.svg",
        "sinusoids-100x16.png",
        "sinusoids-1000x160.png",
    }
    linked = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", folders[0]["docs/reports.md"].decode())
    assert sorted(linked) == sorted(name[5:] for name in folders[0] if "docs/reports/" in name)


def test_every_link_within_the_page_has_its_anchor(tmp_path) -> None:
    page = written(tmp_path, (SHALLOW, shallow()), (Reproduction("R4", "Depth", "", (Variant("depth 2"),)), None))
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links == {"r1", "r4", "r1-shallow", "r9-1"}
    assert links == set(re.findall(r'<a id="([^"]+)"></a>', page))


def test_the_course_has_a_line_and_a_band_for_each_variant(tmp_path) -> None:
    written(tmp_path, (SHALLOW, shallow()))
    root = picture(tmp_path, "r1-shallow-course.svg")
    assert len(lines(root)) == len(SHALLOW.variants)
    assert len({line.get("stroke") for line in lines(root)}) == len(SHALLOW.variants)
    assert [path.get("class") for path in root.iter(f"{SVG}path")].count("band") == len(SHALLOW.variants)
    shown = texts(root)
    assert {variant.name for variant in SHALLOW.variants} <= set(shown)
    assert "epoch" in shown
    assert any(text.endswith(" %") for text in shown)
    assert "<script" not in (tmp_path / "docs/reports/r1-shallow-course.svg").read_text(encoding="utf-8")


def test_the_course_is_the_mean_over_seeds() -> None:
    line = charts.Line("a", 0, [1, 2, 3], [0.5, 0.7, 0.9], [0.4, 0.6, 0.8], [0.6, 0.8, 1.0])
    root = ElementTree.fromstring(charts.curves([charts.Panel("", [line])], "Accuracy", is_share=True))
    (path,) = lines(root)
    heights = [float(point.split()[1]) for point in (path.get("d") or "")[1:].split("L")]
    ticks = [text for text in root.iter(f"{SVG}text") if (text.text or "").endswith("%")]
    places = {float((tick.text or "").split()[0]): float(tick.get("y") or "") - 4.5 for tick in ticks}
    (low, high) = min(places), max(places)
    read = [low + (places[low] - height) / (places[low] - places[high]) * (high - low) for height in heights]
    assert read == pytest.approx([50, 70, 90], abs=0.1)


def test_a_very_bad_variant_does_not_flatten_the_rest(tmp_path) -> None:
    names = ("as written", "mean", "attention")
    plan = Reproduction("R0", "Scales", "", tuple(Variant(name) for name in names))
    values = ([0.098, 0.098, 0.098], [0.980, 0.981, 0.982], [0.985, 0.986, 0.987])
    entries = [entry(one, found) for one, found in zip(plan.variants, values, strict=True)]
    for one, end in zip(entries, (0.098, 0.981, 0.986), strict=True):
        for found in one["runs"]:
            found["curve"] = {"epoch": [1, 2, 3, 4], "accuracy": [end - 0.004, end - 0.003, end - 0.001, end]}
    written(tmp_path, (plan, record("r0-scales", entries)))
    course = picture(tmp_path, "r0-scales-course.svg")
    assert len(lines(course)) == 3
    assert any("the axis leaves out 10 % to 97" in text for text in texts(course))
    ends = [float((line.get("d") or "").rpartition("L")[2].split()[1]) for line in lines(course)]  # last variant first
    assert ends[1] - ends[0] > 50  # half a point between the good ones is plain to see
    assert ends[2] > ends[1] + 50
    accuracy = picture(tmp_path, "r0-scales-accuracy.svg")
    assert any("the axis leaves out" in text for text in texts(accuracy))
    assert {"9.80 ± 0.00 %", "98.10 ± 0.25 %"} <= set(texts(accuracy))


def test_a_scale_without_an_outlier_is_whole() -> None:
    ends = [0.90, 0.95, 0.98]
    whole = scale(ends, [[end] for end in ends], 300, 0)
    assert len(whole.parts) == 1
    assert whole.note == ""
    assert whole.pixel(0.9) == pytest.approx(300)
    assert whole.pixel(0.5) == pytest.approx(300)  # what no part holds lies at the edge
    crossing = scale([0.1, 0.97, 0.98], [[0.99, 0.1], [0.97], [0.98]], 300, 0)
    assert len(crossing.parts) == 1


def test_a_diverging_loss_is_set_apart_above() -> None:
    broken = scale([0.05, 0.06, 40.0], [[0.1, 0.05], [0.1, 0.06], [39.0, 40.0]], 300, 0, is_share=False)
    lower, upper = broken.parts
    assert lower.high < 1 < upper.low
    assert lower.start - lower.end > 3 * (upper.start - upper.end)
    assert "%" not in broken.note


def test_labels_are_pushed_apart_and_no_further_than_needed() -> None:
    places = apart([100.0, 101.0, 101.0, 200.0, 5.0], 15, 0, 300)
    assert places[4] == 5
    assert places[3] == 200
    assert np.diff(sorted(places)).min() == pytest.approx(15)
    assert np.mean(places[:3]) == pytest.approx(np.mean([100, 101, 101]))
    assert places[0] < places[1] < places[2]
    edge = apart([299.0, 300.0], 15, 0, 300)
    assert edge == pytest.approx([285, 300])
    assert np.ptp(apart([1.0] * 100, 15, 0, 300)) == pytest.approx(300)


def grouped(low: list[float]) -> tuple[Reproduction, dict]:
    names, groups = ("plain", "SPT", "LSA"), ("1 %", "10 %", "100 %")
    plan = Reproduction("R2", "Few pictures", "", tuple(Variant(one, group=at) for at in groups for one in names))
    entries = [
        entry(
            one, [low[groups.index(one.group)] + 0.002 * names.index(one.name) + noise for noise in (0, 0.0004, 0.0008)]
        )
        for one in plan.variants
    ]
    return plan, record("r2-few", entries)


def test_groups_near_each_other_are_joined_by_a_line_for_each_variant(tmp_path) -> None:
    plan, content = grouped([0.950, 0.951, 0.952])
    page = written(tmp_path, (plan, content))
    root = picture(tmp_path, "r2-few-accuracy.svg")
    assert [(line.get("d") or "").count("L") for line in lines(root)] == [2, 2, 2]
    assert {"1 %", "10 %", "100 %", "plain", "SPT", "LSA"} <= set(texts(root))
    assert [path.get("class") for path in root.iter(f"{SVG}path")].count("interval") == 9
    assert page.count("against *plain*") == 3
    assert len(lines(picture(tmp_path, "r2-few-course.svg"))) == 9


def test_groups_far_apart_have_a_frame_each(tmp_path) -> None:
    plan, content = grouped([0.80, 0.95, 0.985])
    written(tmp_path, (plan, content))
    root = picture(tmp_path, "r2-few-accuracy.svg")
    assert not lines(root)
    assert any("own scale" in text for text in texts(root))
    assert [path.get("class") for path in root.iter(f"{SVG}path")].count("interval") == 9


def test_a_study_of_numbers_is_one_line(tmp_path) -> None:
    plan = Reproduction("R2", "Patch size", "", tuple(Variant(f"patch {size}") for size in (2, 4, 7)))
    entries = [entry(one, [0.97 + 0.01 * at, 0.972 + 0.01 * at]) for at, one in enumerate(plan.variants)]
    written(tmp_path, (plan, record("r2-patch", entries)))
    (line,) = lines(picture(tmp_path, "r2-patch-accuracy.svg"))
    assert (line.get("d") or "").count("L") == 2


def test_a_curve_may_be_absent_or_have_holes(tmp_path) -> None:
    content = shallow("as written", "logits")
    for found in content["variants"][0]["runs"]:
        del found["curve"]["accuracy"]
    content["variants"][1]["runs"][0]["curve"]["accuracy"][1] = None
    written(tmp_path, (SHALLOW, content))
    (line,) = lines(picture(tmp_path, "r1-shallow-course.svg"))
    assert (line.get("d") or "").count("L") == 2  # four epochs less the one that a seed lacks


def test_one_epoch_has_no_course(tmp_path) -> None:
    content = record("r1-shallow", [entry(AS_WRITTEN, [], runs=[run(0, 0.9, epochs=1)], together=1)])
    page = written(tmp_path, (SHALLOW, content))
    assert [path.name for path in (tmp_path / "docs/reports").iterdir()] == ["r1-shallow-accuracy.svg"]
    assert "course" not in page


def test_more_variants_than_colours_are_told_apart_by_dashes(tmp_path) -> None:
    plan = Reproduction("R0", "Many", "", tuple(Variant(f"kind {letter}") for letter in "abcdefghijk"))
    entries = [entry(one, [0.9 + 0.005 * at, 0.901 + 0.005 * at]) for at, one in enumerate(plan.variants)]
    written(tmp_path, (plan, record("r0-many", entries)))
    found = lines(picture(tmp_path, "r0-many-course.svg"))
    assert len({(line.get("stroke"), line.get("stroke-dasharray")) for line in found}) == 11


def test_names_with_signs_of_markup_stay_whole(tmp_path) -> None:
    plan = Reproduction("R0", "A < B & C", "", (Variant("a|b"), Variant("<c> & d")))
    written_page = written(tmp_path, (plan, record("r0-signs", [entry(one, [0.9, 0.91]) for one in plan.variants])))
    assert r"**a\|b**" in written_page
    assert {"a|b", "<c> & d"} <= set(texts(picture(tmp_path, "r0-signs-accuracy.svg")))


def test_the_summary_is_one_line_an_experiment(tmp_path) -> None:
    mended = Variant("all repairs", ("output=logits", "attention.scale=head"))
    plan = Reproduction("R1", "A shallow ViT", "", (*SHALLOW.variants, mended), (Claim("", "logits", ("as written",)),))
    content = shallow()
    content["variants"].append(entry(mended, [0.98, 0.981, 0.982]))
    records = tmp_path / "records"
    records.mkdir()
    (records / "r1-shallow.json").write_text(json.dumps(content), encoding="utf-8")
    study = Reproduction("R0", "Kinds", "", (Variant("softmax"), Variant("uniform")))
    kinds = record("r0-kinds", [entry(study.variants[0], [0.98, 0.981]), entry(study.variants[1], [0.90, 0.901])])
    (records / "r0-kinds.json").write_text(json.dumps(kinds), encoding="utf-8")
    later = Reproduction("R4", "Depth", "", (Variant("depth 2"),))
    text = summary({"r1-shallow": plan, "r4-depth": later, "r0-kinds": study}, records, "docs/reports.md")
    rows = text.replace(words.SPACE, " ").splitlines()
    assert len(rows) == 5
    assert "(docs/reports.md#r1-shallow) | 90.65 % | 90.50 ± 1.24 % | **98.10 ± 0.25 %** |" in rows[3]
    assert "| no norm: −10.30 ± " in rows[3]  # the largest single change; all repairs together are not single
    assert rows[3].endswith("<br>the report's claims: 1 confirmed |")
    assert "(softmax) | none is higher | uniform: −8.00 ± " in rows[2]
    assert "not run yet" in rows[4]


@pytest.mark.parametrize(("positions", "width", "factor"), [(100, 16, 10), (1000, 160, 1)])
def test_the_sinusoidal_picture_follows_sine_and_cosine(tmp_path, positions: int, width: int, factor: int) -> None:
    written(tmp_path, (Reproduction("R2", "", "", (Variant("a"),)), None))
    image = Image.open(tmp_path / f"docs/reports/sinusoids-{positions}x{width}.png")
    assert image.size == (positions * factor, width * factor)
    pixels = np.asarray(image.convert("RGB"), int)
    small = pixels[::factor, ::factor]
    assert (small.repeat(factor, 0).repeat(factor, 1) == pixels).all()
    feature, place = np.mgrid[:width, :positions]
    angle = place / 10000.0 ** (2 * (feature // 2) / width)
    expected = np.where(feature % 2 == 0, np.sin(angle), np.cos(angle))
    warmth = (small[:, :, 0] - small[:, :, 2]).ravel()[np.argsort(expected.ravel(), kind="stable")]
    assert np.diff(warmth).min() >= -2  # redder and less blue as the value rises, but for rounding
    assert (small[0, 0] == 247).all()  # sin 0
    assert tuple(small[1, 0]) == (178, 24, 43)  # cos 0
