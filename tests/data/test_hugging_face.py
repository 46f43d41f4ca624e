"""Datasets that the test itself makes, in the formats that `datasets` reads; nothing asks a network."""

import json
import shutil
import socket
import sys
from datetime import date

import numpy as np
import pytest
import torch
from PIL import Image

import fedadmm
from fedadmm.core.errors import InputError
from fedadmm.data.examples import IGNORED


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """Import what takes seconds in the process that runs these tests, and in no other."""
    global datasets
    import datasets


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """Give `datasets` a cache of its own, and no network."""

    def refuse(*_):
        raise AssertionError("something asks a network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def images(count, *, seed, mode="RGB"):
    """Return pixels in [0, 255], [image, height, width(, channel)]."""
    shape = (count, 6, 5, 3) if mode == "RGB" else (count, 6, 5)
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


def pets(count, *, seed):
    """Return a split with an image, a class with a name, and an owner."""
    features = datasets.Features(
        picture=datasets.Image(), kind=datasets.ClassLabel(names=["cat", "dog", "owl"]), owner=datasets.Value("string")
    )
    rows = {
        "picture": [Image.fromarray(one) for one in images(count, seed=seed)],
        "kind": [row % 2 for row in range(count)],  # an owl is in none of them
        "owner": [f"owner {row % 4}" for row in range(count)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


PETS = {"inputs": "picture", "targets": "kind", "groups": "owner"}


def save_pets():
    """Save a dataset with a split under another name than ours."""
    datasets.DatasetDict(train=pets(12, seed=0), held=pets(4, seed=1)).save_to_disk("pets")


@pytest.mark.slow
def test_images_and_classes_of_a_saved_dataset_are_the_ones_that_went_in():
    save_pets()
    found = fedadmm.load("hf:pets", options=PETS | {"test": "held"})
    assert found.train.inputs.shape == (12, 3, 6, 5)
    expected = torch.from_numpy(images(12, seed=0)).permute(0, 3, 1, 2) / 255
    assert torch.equal(found.train.inputs, expected)
    assert found.train.targets.tolist() == [0, 1] * 6
    assert found.num_classes == 3  # also the one that no example has
    assert len(found.test.targets) == 4
    grey = fedadmm.load("hf:pets", options=PETS | {"image_mode": "L", "image_size": 3})
    assert grey.train.inputs.shape == (12, 1, 3, 3)
    assert grey.test is None  # its split is called otherwise, and none was named


@pytest.mark.slow
def test_a_column_says_whose_an_example_is_and_a_run_is_the_same_lazily(tmp_path):
    save_pets()
    (tmp_path / "pets.toml").write_text(
        'name = "pets"\nrounds = 2\nparticipation = 1.0\nengine = "serial"\n'
        '[model]\nname = "softmax_regression"\n[local]\nepochs = 1\nbatch_size = 2\n'
        '[data]\nname = "hf:pets"\npartition = "natural"\n'
        'options = {inputs = "picture", targets = "kind", groups = "owner", test = "held"}\n'
    )
    runs = [
        fedadmm.run(fedadmm.load_experiment("pets.toml", changes=changes), out=tmp_path / str(place), progress=False)
        for place, changes in enumerate([{}, {"data.options.lazy": True}])
    ]
    assert runs[0].experiment.hash != runs[1].experiment.hash
    with runs[0].opened() as simulation:
        assert simulation.task.data.num_examples.tolist() == [
            3,
            3,
            3,
            3,
        ]  # twelve examples, of owners 0, 1, 2, 3 in turn
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert runs[0].history[-1].accuracy == runs[1].history[-1].accuracy


# `datasets` leaves a CSV file to the garbage collector to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_tables_of_numbers_become_vectors_and_words_become_classes(tmp_path):
    (tmp_path / "flowers.csv").write_text(
        "long,wide,whole,kind,a,b\n1.5,2.5,3,rose,1,0\n4.5,5.5,6,aster,0,0\n1,2,3,rose,1,1\n"
    )
    found = fedadmm.load("hf:flowers.csv", options={"inputs": ["long", "wide", "whole"], "targets": "kind"})
    assert found.train.inputs.tolist() == [[1.5, 2.5, 3], [4.5, 5.5, 6], [1, 2, 3]]
    assert found.train.targets.tolist() == [1, 0, 1]  # aster, rose
    assert found.num_classes == 2
    labels = fedadmm.load("hf:flowers.csv", options={"inputs": "long", "targets": ["a", "b"]})
    assert labels.train.inputs.tolist() == [[1.5], [4.5], [1]]
    assert labels.train.targets.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert labels.train.targets.dtype == torch.float32
    assert labels.num_classes == 0
    # long: mean 7/3, sample variance ((-5/6)^2 + (13/6)^2 + (-4/3)^2) / 2 = 43/12
    normal = fedadmm.load(
        "hf:flowers.csv", options={"inputs": ["long", "wide"], "targets": "kind"}, normalisation="dataset"
    )
    assert normal.train.inputs[0, 0].item() == pytest.approx((1.5 - 7 / 3) / (43 / 12) ** 0.5)


def test_text_becomes_bytes_and_a_text_of_its_own_the_next_ones(tmp_path):
    (tmp_path / "said").mkdir()
    for split, rows in (("train", [("hey", 1), ("é", 0)]), ("test", [("no longer", 1)])):
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        (tmp_path / "said" / f"{split}.jsonl").write_text("\n".join(lines))
    found = fedadmm.load("hf:said", options={"length": 4})  # its two columns are the default ones
    assert found.train.inputs.tolist() == [[104, 101, 121, 0], [195, 169, 0, 0]]
    assert bytes(found.test.inputs[0].tolist()) == b"no l"
    assert found.train.targets.tolist() == [1, 0]
    for lazy in (False, True):
        options = {"inputs": "text", "targets": "text", "length": 4, "lazy": lazy}
        following = fedadmm.load("hf:said", options=options)
        train = following.train if not lazy else following.reader.read(torch.tensor([0, 1]), seed=0)
        assert train[0].tolist() == found.train.inputs.tolist()
        assert train[1].tolist() == [[101, 121, IGNORED, IGNORED], [169, IGNORED, IGNORED, IGNORED]]
        assert following.num_classes == 256


def test_folders_of_images_and_parquet_and_several_kinds_of_inputs(tmp_path):
    pixels = images(4, seed=2, mode="L")
    for place, (split, kind) in enumerate([("train", "a"), ("train", "b"), ("test", "a"), ("test", "b")]):
        folder = tmp_path / "folders" / split / kind
        folder.mkdir(parents=True)
        Image.fromarray(pixels[place]).save(folder / "one.png")
    found = fedadmm.load("hf:folders")
    assert torch.equal(found.train.inputs, torch.from_numpy(pixels[:2, None]) / 255)
    assert found.test.targets.tolist() == [0, 1]
    table = {"tokens": [[1, 2], [3, 4]], "age": [20.0, 30.0], "label": [0.5, 1.5]}
    datasets.Dataset.from_dict(table).to_parquet("people.parquet")
    people = fedadmm.load("hf:people.parquet", options={"inputs": ["tokens", "age"]})
    inputs, targets = people.reader.read(torch.tensor([1]), seed=0)
    assert inputs["tokens"].tolist() == [[3, 4]]
    assert inputs["tokens"].dtype == torch.int64
    assert inputs["age"].tolist() == [30.0]
    assert targets.tolist() == [1.5]


def test_a_dataset_of_the_hub_is_taken_from_the_cache(tmp_path):
    pets(6, seed=0).to_parquet("pets.parquet")
    datasets.load_dataset("parquet", data_files="pets.parquet")
    # As the hub's dataset somebody/pets would be there.
    (made,) = (tmp_path / "cache" / "parquet").iterdir()
    (place,) = (path.parent for path in made.rglob("dataset_info.json"))
    target = tmp_path / "cache" / "somebody___pets" / "default" / "0.0.0" / ("0" * 40)
    shutil.copytree(place, target)
    (target / "parquet-train.arrow").rename(target / "pets-train.arrow")
    table = json.loads((target / "dataset_info.json").read_text())
    table |= {"builder_name": "parquet", "dataset_name": "pets", "config_name": "default"}
    (target / "dataset_info.json").write_text(json.dumps(table))
    assert len(fedadmm.load("hf:somebody/pets", options=PETS).train.targets) == 6


def test_without_the_package_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'needs the package datasets.*pip install "fedadmm\[hf\]"'):
        fedadmm.load("hf:pets")


MISTAKES = [
    ("hf:no/such", {}, "there is no file or folder no/such .* `fedadmm data fetch hf:no/such`"),
    ("hf:", {}, 'data "hf:" is not a dataset'),
    ("hf:notes.md", {}, "is not a dataset; write hf: and a name, a folder, or a file"),
    ("hf:broken.parquet", {}, 'data "hf:broken.parquet" fails; give a dataset that `datasets` can read\n'),
    ("hf:pets", {"inpts": "picture"}, "unknown key 'inpts'; did you mean inputs"),
    ("hf:pets", {"inputs": "image", "targets": "kind"}, "has no column 'image'; the columns are picture, kind, owner"),
    ("hf:pets", {"inputs": "picture", "targets": "knd"}, "has no column 'knd'; did you mean kind"),
    ("hf:pets", {"inputs": []}, "inputs=.* is empty"),
    ("hf:pets", {"targets": "kind"}, "has the columns picture .*; set inputs and targets in data.options"),
    ("hf:pets", {**PETS, "test": "tset"}, "has no split 'tset'; the splits are train, held"),
    ("hf:pets", {**PETS, "groups": "who"}, "has no column 'who'"),
    ("hf:pets", {"inputs": "picture", "targets": "picture"}, "are neither classes nor numbers"),
    ("hf:pets", {"inputs": "owner", "targets": "kind"}, "'owner' of \"hf:pets\" is text; set length"),
    ("hf:pets", {**PETS, "length": 0}, "length=0 is out of range"),
    ("hf:odd", {"inputs": "lists"}, "'lists' of \"hf:odd\" has lists of different lengths"),
    ("hf:odd", {"inputs": "empty"}, "'empty' of \"hf:odd\" is empty in 1 rows"),
    ("hf:odd", {"inputs": "picture"}, "has images in grey and in colours; set image_mode"),
    ("hf:odd", {"inputs": "picture", "image_mode": "L"}, "has images of 5x6 and of 3x3 pixels; set image_size"),
    ("hf:odd", {"inputs": "when"}, "'when' of \"hf:odd\" is of type .*; use numbers, images or text"),
]


@pytest.mark.parametrize(
    ("name", "options", "sentence"), MISTAKES, ids=[str(number) for number in range(len(MISTAKES))]
)
def test_a_mistake_is_a_sentence(tmp_path, name, options, sentence):
    (tmp_path / "notes.md").write_text("not data")
    (tmp_path / "broken.parquet").write_text("not data either")
    if name == "hf:pets":
        save_pets()
    if name == "hf:odd":
        pictures = [Image.fromarray(images(1, seed=0)[0]), Image.new("L", (3, 3))]
        columns = {"lists": [[1], [1, 2]], "empty": [1, None], "when": [date(2026, 1, 1), date(2026, 1, 2)]}
        odd = datasets.Dataset.from_dict({**columns, "label": [0, 1], "picture": pictures})
        odd.cast_column("picture", datasets.Image()).save_to_disk("odd")
    with pytest.raises(InputError, match=sentence):
        fedadmm.load(name, options=options)
