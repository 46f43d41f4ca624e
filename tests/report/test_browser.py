"""The page in a real browser: it draws, toggles, changes its axis, and asks nobody for anything."""

from dataclasses import replace

import pytest

from browser import needs_browser, show, wait_for
from fedadmm.report.page import write_page
from fedadmm.report.runs import Published, Section, read_run
from run_folders import write_run

pytestmark = [*needs_browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    curves = {"fedadmm": [0.2, 0.4, 0.6], "fedavg": [0.1, 0.4, 0.45], "odd </script> <b>&": [0.1, 0.2, 0.3]}
    runs = [
        replace(
            read_run(
                write_run(
                    folder / f"{n}-{seed}",
                    [a + 0.01 * seed for a in accuracies],
                    label=label,
                    seed=seed,
                    loss=[3.0, 2.0, 1.0],
                    client_quantiles=[{"accuracy": [tenth / 10 for tenth in range(11)]}] * 3,
                )
            ),
            published=Published("Table III", 33),
        )
        for n, (label, accuracies) in enumerate(curves.items())
        for seed in (0, 1)
    ]
    sections = [Section("First", runs, "A remark."), Section("Second", runs[:1])]
    return write_page(sections, folder / "r.html", title="t")


@pytest.fixture
def opened(driver, page):
    """The page, freshly loaded, with its first plot drawn; its console must stay silent to the end."""
    driver.get(page.as_uri())
    wait_for(driver, "return document.querySelectorAll('#section-0 .scatterlayer .js-line').length >= 3")
    yield driver
    assert driver.get_log("browser") == []


def drawn(driver):
    """Return the colours of the lines in the first plot, without the bands'."""
    return driver.execute_script(
        "return [...document.querySelectorAll('#section-0 .scatterlayer .js-line')]"
        ".map(line => [line.style.stroke, line.style.strokeWidth]).filter(s => s[1] === '2px').map(s => s[0])"
    )


def press(driver, selector, keys):
    from selenium.webdriver.common.by import By

    driver.find_element(By.CSS_SELECTOR, selector).send_keys(keys)


BLUE, GREEN = "rgb(0, 114, 178)", "rgb(0, 158, 115)"


def test_every_method_has_its_curve_in_its_colour(opened):
    assert drawn(opened)[:2] == [BLUE, GREEN]
    assert len(drawn(opened)) == 3
    fills = "return document.querySelectorAll('#section-0 .fills .js-fill').length"
    assert opened.execute_script(fills) == 3  # a band each: two seeds


def test_the_legend_toggles_a_method_by_keyboard(opened):
    press(opened, "#section-0 .methods label:nth-of-type(1) input", " ")
    wait_for(opened, "return !document.querySelector('#section-0 .methods input').checked")
    assert len(drawn(opened)) == 2
    assert BLUE not in drawn(opened)
    press(opened, "#section-0 [data-show=none]", "\n")
    assert drawn(opened) == []
    press(opened, "#section-0 [data-show=all]", "\n")
    assert len(drawn(opened)) == 3


def test_the_x_axis_is_chosen_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    title = "return document.querySelector('#section-0 .xtitle').textContent"
    titles = [opened.execute_script(title)]
    for _ in range(3):
        press(opened, "#section-0 .axis input:checked", Keys.ARROW_RIGHT)
        titles.append(opened.execute_script(title))
    assert titles == ["rounds", "bytes uploaded", "gradient evaluations", "seconds"]
    last = "return document.querySelector('#section-0 .plot').data.at(-1).x"
    assert opened.execute_script(last) == [0.5, 1, 1.5]  # half a second a round


PLOT = "document.querySelector('#section-0 .plot')"


def test_the_metric_is_chosen_and_a_loss_is_always_there(opened):
    press(opened, "#section-0 .metric", "test l")
    wait_for(opened, "return document.querySelector('#section-0 .ytitle').textContent === 'test loss'")
    assert opened.execute_script(f"return {PLOT}.data.at(-1).y") == [3, 2, 1]
    assert opened.execute_script("return document.querySelector('#section-0 .axis [value=clients]').disabled")
    assert not opened.execute_script(f"return {PLOT}.layout.shapes.length")  # the target is one of the accuracy


def test_the_error_is_drawn_on_a_logarithmic_axis(opened):
    press(opened, "#section-0 .scale [value=linear]", "\ue014")  # arrow right
    wait_for(
        opened, "return document.querySelector('#section-0 .ytitle').textContent === 'error: 1 \\u2212 test accuracy'"
    )
    assert opened.execute_script(f"return {PLOT}.layout.yaxis.type") == "log"
    drawn_errors = opened.execute_script(f"return {PLOT}.data[1].y")
    assert drawn_errors == pytest.approx([0.795, 0.595, 0.395])  # fedadmm: means of 0.2 and 0.21, and so on
    assert opened.execute_script(f"return {PLOT}.layout.shapes[0].y0") == 0.5


def test_zoom_keeps_the_x_axis_and_stays_while_curves_come_and_go(opened):
    ranges = f"return ['xaxis', 'yaxis'].map(name => {PLOT}.layout[name].range)"
    x, (low, high) = opened.execute_script(ranges)
    assert opened.execute_script(f"return {PLOT}.layout.xaxis.fixedrange")
    press(opened, "#section-0 [data-zoom=in]", "\n")
    half = [(low + high) / 2, high]
    wait_for(opened, f"return {PLOT}.layout.yaxis.range[0] > {low}")
    assert opened.execute_script(ranges) == [x, pytest.approx(half)]
    press(opened, "#section-0 .methods label:nth-of-type(3) input", " ")
    assert opened.execute_script(ranges) == [x, pytest.approx(half)]
    press(opened, "#section-0 [data-zoom=out]", "\n")
    wait_for(opened, f"return {PLOT}.layout.yaxis.range[0] < {half[0]}")


def test_the_scores_of_clients_are_drawn_from_the_worst_on(opened):
    opened.execute_script("document.querySelector('#section-0 .axis [value=clients]').click()")
    title = "return document.querySelector('#section-0 .xtitle').textContent"
    assert opened.execute_script(title) == "share of the clients, from the worst on"
    assert opened.execute_script(f"return {PLOT}.data.at(-1).y") == [tenth / 10 for tenth in range(11)]


def test_the_look_is_chosen(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    ink = "return document.querySelector('.plot .xtitle').style.fill"
    for look, colour in (("dark", "rgb(230, 232, 235)"), ("light", "rgb(28, 30, 33)")):
        Select(opened.find_element(By.ID, "look")).select_by_visible_text(look)
        assert opened.execute_script(ink) == colour


def test_a_methods_whole_experiment_is_one_press_away(opened):
    press(opened, "#section-0 tbody tr:nth-child(3) button", "\n")
    shown = opened.execute_script("return document.getElementById('experiment').open")
    assert shown
    assert opened.execute_script("return document.getElementById('experiment-name').textContent") == (
        "odd </script> <b>&"
    )
    assert "num_clients = 10" in opened.execute_script("return document.getElementById('experiment-text').textContent")
    press(opened, "#experiment button", "\n")
    wait_for(opened, "return !document.getElementById('experiment').open")


def test_hovering_says_what_a_point_is(opened):
    opened.execute_script(
        "Plotly.Fx.hover(document.querySelector('#section-0 .plot'), [{curveNumber: 5, pointNumber: 1}])"
    )
    wait_for(opened, "return document.querySelector('#section-0 .hoverlayer text')")
    text = opened.execute_script("return document.querySelector('#section-0 .hoverlayer').textContent")
    assert "odd </script> <b>&" in text
    assert "accuracy 0.205 ± 0.007" in text
    assert "2 of 2 seeds" in text


def test_a_later_plot_is_drawn_when_it_comes_near(opened):
    opened.execute_script("document.querySelector('#section-1').scrollIntoView()")
    wait_for(opened, "return document.querySelector('#section-1 .scatterlayer .js-line')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_need_not_scroll_sideways_and_the_colours_follow_the_scheme(driver, page, scheme):
    show(driver, width=390, scheme=scheme)
    try:
        driver.get(page.as_uri())
        wait_for(driver, "return document.querySelector('.plot .xtitle')")
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
        ink = driver.execute_script("return document.querySelector('.plot .xtitle').style.fill")
        assert ink == {"light": "rgb(28, 30, 33)", "dark": "rgb(230, 232, 235)"}[scheme]
        swatch = "return document.querySelector('tbody th svg').getBoundingClientRect().width"
        assert driver.execute_script(swatch) >= 16
        edge = "return getComputedStyle(document.querySelector('.table')).backgroundImage"
        assert {"light": "rgba(0, 0, 0, 0.3)", "dark": "rgba(255, 255, 255, 0.3)"}[scheme] in driver.execute_script(
            edge
        )
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_no_request_leaves_the_page(opened):
    assert opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)") == []
