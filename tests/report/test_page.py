import json
import re
from dataclasses import replace

import pytest
from matplotlib import pyplot as plt

from fedadmm.report.figures import accuracy_figure, columns_figure, epsilon_figure
from fedadmm.report.methods import methods_in, methods_of
from fedadmm.report.page import write_page, write_report
from fedadmm.report.runs import Published, Section, read_run
from run_folders import write_run

EVIL = '</script><img src=x onerror=alert(1)>&"'


def data_of(page):
    text = page.read_text()
    return json.loads(re.search(r'id="report-data">(.*?)</script>', text, flags=re.DOTALL)[1])


def markup_of(page):
    """Return the page without plotly.js, which holds anything."""
    return re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)


def test_the_page_holds_each_curve_and_its_whole_experiment(tmp_path):
    run = read_run(write_run(tmp_path / "a", [0.123456, 0.5, 0.7], label="feddyn"))
    page = write_page([Section("one", [run])], tmp_path / "r.html", title="t")
    (section,) = data_of(page)
    (curve,) = section["curves"]
    assert curve["y"] == {"accuracy": {"rounds": None, "y": [0.1235, 0.5, 0.7], "spread": None, "seeds": None}}
    assert curve["x"] == {
        "round": [1, 2, 3],
        "bytes_up": [1000, 2000, 3000],
        "gradient_evaluations": [10, 20, 30],
        "seconds": [0.5, 1, 1.5],
    }
    assert (section["target"], curve["colour"]) == (0.5, "#D55E00")
    assert 'partition = "iid"' in curve["experiment"]
    assert curve["runs"] == "seed 0 (a)"


def test_every_metric_of_a_run_can_be_chosen_and_the_one_it_is_judged_by_comes_first(tmp_path):
    deciles = [{"accuracy": [0.1] * 11, "loss": [*range(11)]}] * 3
    numbers = {"loss": [3.0, 2.0, 1.0], "client_loss": [9.0, 8.0, 7.0], "bleu": [20.0, None, 40.0]}
    folder = write_run(tmp_path / "a", [0.1, 0.5, 0.7], **numbers, client_quantiles=deciles)
    page = write_page([Section("one", [read_run(folder)])], tmp_path / "r.html", title="t")
    (section,) = data_of(page)
    assert [*section["metrics"]] == ["accuracy", "loss", "client_loss", "bleu"]
    assert '<option value="loss">test loss</option>' in markup_of(page)
    assert [metric["lower"] for metric in section["metrics"].values()] == [False, True, True, False]
    # An error is 1 - accuracy; a loss is one itself, and a score above 1 has no ceiling that is known.
    assert [metric["ceiling"] for metric in section["metrics"].values()] == [1, None, None, None]
    (curve,) = section["curves"]
    assert (curve["y"]["bleu"]["rounds"], curve["y"]["bleu"]["y"]) == ([1, 3], [20, 40])
    assert curve["clients"]["accuracy"]["y"] == [0.1] * 11
    assert curve["clients"]["loss"]["y"] == [*range(10, -1, -1)]  # the worst client has the highest loss
    (folder / "experiment.toml").write_text('metric = "bleu"\n' + (folder / "experiment.toml").read_text())
    (section,) = data_of(write_page([Section("one", [read_run(folder)])], tmp_path / "r.html", title="t"))
    assert [*section["metrics"]] == ["bleu", "accuracy", "loss", "client_loss"]


@pytest.mark.slow
def test_a_table_without_a_target_says_nothing_of_one_and_methods_stand_in_the_order_of_arrival(tmp_path):
    late = read_run(write_run(tmp_path / "a", [0.1, 0.2, 0.7], label="late"))
    early = read_run(write_run(tmp_path / "b", [0.1, 0.6, 0.6], label="early"))
    page = write_page([Section("one", [late, early])], tmp_path / "r.html", title="t")
    assert [curve["name"] for curve in data_of(page)[0]["curves"]] == ["early", "late"]
    assert ">rounds to target<" in markup_of(page)
    for run in (late, early):
        del run.experiment["target"]
    untargeted = [replace(run) for run in (late, early)]
    page = write_page([Section("one", untargeted)], tmp_path / "r.html", title="t")
    assert "to target" not in markup_of(page)


def test_nothing_from_a_run_folder_becomes_markup(tmp_path):
    run = read_run(write_run(tmp_path / "a", [0.6], label=EVIL))
    section = Section(EVIL, [replace(run, published=Published(EVIL, 3))], EVIL)
    page = write_page([section, section], tmp_path / "r.html", title=EVIL)
    assert "<img" not in markup_of(page)
    assert data_of(page)[0]["curves"][0]["name"] == EVIL


def test_the_page_asks_nobody_for_anything(tmp_path):
    run = read_run(write_run(tmp_path / "a", [0.6]))
    markup = markup_of(write_page([Section("one", [run])], tmp_path / "r.html", title="t"))
    assert "default-src 'none'" in markup
    assert not re.search(r"(src|href)=[\"']?(?!#)\w", markup)


@pytest.mark.slow
def test_several_sections_are_in_one_figure_too_a_panel_each(tmp_path):
    sections = [
        Section(f"column {n}", [read_run(write_run(tmp_path / f"{n}{label}", [0.2, 0.6], label=label))])
        for n in range(5)
        for label in [f"fedadmm_E{n % 2}"]
    ]
    write_report(sections[:2], tmp_path / "out", title="t")
    assert (tmp_path / "out/figures/all.pdf").exists()
    methods = methods_in([section.runs for section in sections])
    figure = columns_figure({s.title: inside for s, inside in zip(sections, methods, strict=True)})
    assert [panel.get_title() for panel in figure.axes] == [section.title for section in sections]
    colours = [panel.lines[0].get_color() for panel in figure.axes]
    assert colours == [colours[0], colours[1], colours[0], colours[1], colours[0]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedadmm_E0", "fedadmm_E1"]
    plt.close(figure)


def test_a_much_longer_run_leaves_the_others_room(tmp_path):
    short = [read_run(write_run(tmp_path / label, [0.2, 0.6], label=label, rounds=2)) for label in "ab"]
    long = read_run(write_run(tmp_path / "c", [0.1] * 20, label="fedsgd", rounds=20))
    (panel, *_) = accuracy_figure(methods_of([*short, long]), title="t").axes
    assert panel.get_xlim() == (0, 2.1)
    assert panel.get_xlabel() == "rounds (fedsgd goes on)"
    (panel, *_) = accuracy_figure(methods_of(short), title="t").axes
    assert panel.get_xlabel() == "rounds"
    plt.close("all")


@pytest.mark.slow
def test_a_report_has_figures_for_print_and_tables_for_other_documents(tmp_path):
    runs = [
        replace(
            read_run(write_run(tmp_path / f"{label}{seed}", [0.2, 0.6], label=label, seed=seed)),
            published=Published("Table III", 10),
        )
        for label in ("fedadmm", "_odd $label", "fedavg")
        for seed in (0, 1)
    ]
    sections = [Section("Table III: MNIST, IID", runs), Section("Later", [], "To be run.")]
    page = write_report(sections, tmp_path / "out", title="t")
    assert page == tmp_path / "out/report.html"
    assert "No runs yet." in page.read_text()
    figures = sorted(path.name for path in (tmp_path / "out/figures").iterdir())
    assert figures == ["01-table-iii-mnist-iid.pdf", "01-table-iii-mnist-iid.png"]
    assert (tmp_path / "out/figures" / figures[0]).read_bytes().startswith(b"%PDF")
    assert (tmp_path / "out/figures" / figures[1]).read_bytes().startswith(b"\x89PNG")
    assert "| fedadmm | 2.0 ± 0.0 | 10 |" in (tmp_path / "out/tables.md").read_text()
    assert r"fedadmm & 2.0 $\pm$ 0.0 & 10 &" in (tmp_path / "out/tables.tex").read_text()


@pytest.mark.slow
def test_private_runs_have_a_column_a_curve_and_a_figure_of_what_they_cost(tmp_path):
    private = write_run(tmp_path / "a", [0.1, 0.3, 0.6], label="private", epsilon_spent=[1.0, 1.5, 1.875])
    plain = write_run(tmp_path / "b", [0.2, 0.5, 0.7], label="plain")
    out = tmp_path / "report"
    page = write_report([Section("one", [read_run(private), read_run(plain)])], out, title="t")
    assert "| private | 3 |" in (out / "tables.md").read_text()
    assert "| 1.88 |" in (out / "tables.md").read_text()
    (section,) = data_of(page)
    assert section["metrics"]["epsilon_spent"]["title"] == "epsilon spent so far"
    assert {curve["name"]: curve["y"].get("epsilon_spent", {}).get("y") for curve in section["curves"]} == {
        "private": [1.0, 1.5, 1.875],
        "plain": None,
    }
    assert (out / "figures/01-one-epsilon.png").exists()
    spent, reached = epsilon_figure(methods_of([read_run(private), read_run(plain)]), title="t").axes
    assert spent.lines[0].get_xydata().tolist() == [[1, 1.0], [2, 1.5], [3, 1.875]]
    assert reached.lines[0].get_xydata().tolist() == [[1.0, 0.1], [1.5, 0.3], [1.875, 0.6]]
    assert len(spent.lines) == 1
