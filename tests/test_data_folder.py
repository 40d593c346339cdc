"""The user's own folder of pictures: what is read, what is noted, what is refused."""

import logging
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.data import Folder, read_picture
from vitlab.data import pictures as files
from vitlab.data.folder import parse_size
from vitlab.data.pictures import Room
from vitlab.data.words import natural
from vitlab.errors import BadInput

NOWHERE = Path("nowhere")
SPLIT = ("train/a", "test/a", "train/b", "test/b")  # copies of one picture are held out together, so none would be


def picture(
    path: Path, colour: object = 128, mode: str = "L", size: tuple[int, int] = (8, 8), **options: object
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


def classes(root: Path, count: int = 5, names: tuple[str, ...] = ("cat", "dog"), **options: object) -> Path:
    for shade, name in enumerate(names):
        for number in range(count):
            picture(root / name / f"{number}.png", 40 * shade + number, **options)
    return root


def refusal(source: Folder) -> str:
    with pytest.raises(BadInput) as caught:
        source.load(NOWHERE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plain_folder_is_read_exactly(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    content = {name: random.randint(0, 256, (5, 6, 9, 3), np.uint8) for name in ("2", "10")}
    for name, pictures in content.items():
        (tmp_path / name).mkdir()
        for number, pixels in enumerate(pictures):
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.classes == ("2", "10")
    assert loaded.name == tmp_path.name
    assert loaded.train.pictures.shape == (8, 3, 6, 9)
    assert loaded.train.pictures.dtype == torch.uint8
    assert loaded.test.labels.tolist() == [0, 1]
    everything = [*loaded.train.pictures.numpy(), *loaded.test.pictures.numpy()]
    labels = [*loaded.train.labels.tolist(), *loaded.test.labels.tolist()]
    for label, name in enumerate(loaded.classes):
        found = sorted(pixels.tobytes() for pixels, own in zip(everything, labels, strict=True) if own == label)
        assert found == sorted(pixels.transpose(2, 0, 1).tobytes() for pixels in content[name])
    assert loaded.notes == ("2 of 10 pictures held out for testing, 20% of each class",)
    again = Folder(str(tmp_path)).load(NOWHERE)
    assert torch.equal(again.test.pictures, loaded.test.pictures)


@pytest.mark.parametrize("test", ["test", "val", "Valid", "validation", "eval", "dev", "holdout"])
def test_a_split_is_taken_as_it_is(tmp_path: Path, test: str) -> None:
    classes(tmp_path / "train", 4)
    classes(tmp_path / test, 2, ("dog",))
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert (len(loaded.train), len(loaded.test)) == (8, 2)
    assert loaded.test.labels.tolist() == [1, 1]
    assert loaded.notes == (
        *([] if test == "test" else [f"{test}/ is the test part, as there is no test/"]),
        f"not tested, as {test}/ holds none: cat",
    )


@pytest.mark.parametrize(
    ("train", "test"),
    [("train_set", "test_set"), ("Training-Set", "testset"), ("my-train", "my-test"), ("a_train", "a_val"),
     ("my train set", "my dev set"), ("train", "test_set")],
)  # fmt: skip
def test_a_split_goes_by_other_names_too(tmp_path: Path, train: str, test: str) -> None:
    classes(tmp_path / train, 4)
    classes(tmp_path / test, 2)
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert (loaded.classes, len(loaded.train), len(loaded.test)) == (("cat", "dog"), 8, 4)
    assert loaded.notes == (() if "test" in test else (f"{test}/ is the test part, as there is no test/",))


def test_parts_are_not_taken_for_classes(tmp_path: Path) -> None:
    layout = "lay it out as train/CLASS/ and test/CLASS/"
    classes(tmp_path / "only" / "test")
    classes(tmp_path / "only" / "val")
    assert f"only holds parts and no classes (test, val), and no training part of class folders: {layout}" in refusal(
        Folder(str(tmp_path / "only"))
    )
    classes(tmp_path / "loose", 5, ("train", "test"))
    assert "loose holds parts and no classes (test, train)" in refusal(Folder(str(tmp_path / "loose")))
    for name in ("a-train", "a-test", "b-train", "b-test"):
        classes(tmp_path / "two" / name)
    assert "two holds parts and no classes (a-test, a-train, b-test, b-train)" in refusal(Folder(str(tmp_path / "two")))
    for name in ("cat", "dog"):
        classes(tmp_path / "within" / name, 5, ("train", "test"))
    told = f"each class folder of {tmp_path / 'within'} holds a training and a test part: {layout}"
    assert refusal(Folder(str(tmp_path / "within"))) == told
    trains = classes(tmp_path / "trains", 5, ("steam-train", "bullet-train"))
    assert Folder(str(trains)).load(NOWHERE).classes == ("bullet-train", "steam-train")
    classes(trains / "steam-train", 5, ("train", "test"))
    assert Folder(str(trains)).load(NOWHERE).classes == ("bullet-train", "steam-train")


def test_pictures_beside_the_class_folders_are_noted(tmp_path: Path) -> None:
    picture(classes(tmp_path) / "stray.png")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert len(loaded.train) + len(loaded.test) == 10
    assert "pictures beside the class folders left out" in loaded.notes


def test_a_folder_that_holds_nothing_but_the_folder_of_classes_is_entered(tmp_path: Path) -> None:
    classes(tmp_path / "once" / "unpacked", 5)
    classes(tmp_path / "split" / "unpacked" / "train", 5)
    classes(tmp_path / "split" / "unpacked" / "test", 1)
    assert Folder(str(tmp_path / "once")).load(NOWHERE).classes == ("cat", "dog")
    assert Folder(str(tmp_path / "split")).survey().tests == 2


def test_what_lies_beside_a_split_is_noted(tmp_path: Path) -> None:
    for name in ("train", "test", "val", "extra"):
        classes(tmp_path / name, 2)
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.notes == ("left out beside train/: extra, val",)


def test_train_without_test_is_held_out_and_a_class_may_be_called_train(tmp_path: Path) -> None:
    loaded = Folder(str(classes(tmp_path / "a" / "train", 10).parent), test=0.3).load(NOWHERE)
    assert (len(loaded.train), len(loaded.test)) == (14, 6)
    loaded = Folder(str(classes(tmp_path / "b", 5, ("train", "tram")))).load(NOWHERE)
    assert loaded.classes == ("train", "tram")


def test_sizes_that_differ_are_scaled_to_the_median_and_cropped(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", size=(30, 20))
    picture(tmp_path / "a" / "2.png", 90, size=(26, 26))
    picture(tmp_path / "b" / "3.png", 60, size=(500, 10))
    picture(tmp_path / "b" / "4.png", 30, size=(26, 22))
    loaded = Folder(str(tmp_path), test=0.5).load(NOWHERE)
    assert loaded.train.pictures.shape[1:] == (
        1,
        24,
        24,
    )  # sides 10 20 22 26 26 26 30 500, median 26, to a multiple of 4
    assert "pictures of 4 sizes scaled to cover 24×24 and cropped at the centre" in loaded.notes
    picture(tmp_path / "a" / "5.png", size=(900, 900))
    picture(tmp_path / "b" / "6.png", size=(800, 900))
    picture(tmp_path / "b" / "7.png", size=(800, 900))
    assert Folder(str(tmp_path), test=0.5).load(NOWHERE).train.pictures.shape[1:] == (1, 64, 64)
    assert Folder(str(tmp_path), size="8x12").load(NOWHERE).train.pictures.shape[1:] == (1, 8, 12)


def test_cropping_keeps_the_centre_and_the_aspect(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert (read_picture(tmp_path / "wide.png", 1, 10, 10) == 255).all()
    assert read_picture(tmp_path / "wide.png", 3, 5, 15).shape == (3, 5, 15)


def test_channels_are_found_and_mixtures_are_noted(tmp_path: Path) -> None:
    classes(tmp_path, 5)
    assert Folder(str(tmp_path)).load(NOWHERE).train.pictures.shape[1] == 1
    picture(tmp_path / "cat" / "colour.png", (255, 0, 0), "RGB")
    mixed = Folder(str(tmp_path)).load(NOWHERE)
    assert mixed.train.pictures.shape[1] == 3
    assert "10 grey pictures read as colour" in mixed.notes
    grey = Folder(str(tmp_path), channels=1).load(NOWHERE)
    assert grey.train.pictures.shape[1] == 1
    assert "1 colour picture read as grey" in grey.notes
    assert "choose 1 (grey), 3 (colour) or 0" in refusal(Folder(str(tmp_path), channels=2))


def pixel(path: Path, channels: int = 3, at: tuple[int, int] = (0, 0)) -> list[int]:
    return read_picture(path, channels, 8, 8)[:, at[0], at[1]].tolist()


def test_unusual_pictures_are_brought_to_eight_bits(tmp_path: Path) -> None:
    assert pixel(picture(tmp_path / "alpha.png", (0, 0, 0, 0), "RGBA")) == [255, 255, 255]
    assert pixel(picture(tmp_path / "half.png", (0, 0, 0, 128), "RGBA")) == [127, 127, 127]
    assert pixel(picture(tmp_path / "grey-alpha.png", (0, 0), "LA"), 1) == [255]
    assert pixel(picture(tmp_path / "bits.png", 1, "1"), 1) == [255]
    assert pixel(picture(tmp_path / "print.jpg", (0, 0, 0, 0), "CMYK")) == [255, 255, 255]
    deep = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    deep.save(tmp_path / "deep.png")
    deep.save(tmp_path / "deep.tif")
    assert pixel(tmp_path / "deep.png", 1) == pixel(tmp_path / "deep.tif", 1) == [round(40000 / 257)]
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(tmp_path / "palette.png", transparency=0)
    assert pixel(tmp_path / "palette.png") == [10, 20, 30]
    first, second = Image.new("L", (8, 8), 50), Image.new("L", (8, 8), 200)
    first.save(tmp_path / "moving.gif", save_all=True, append_images=[second])
    assert pixel(tmp_path / "moving.gif", 1) == [50]


def test_a_turned_photograph_is_set_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255  # the left half is white; turned by a quarter to the right it is the upper half
    exif = Image.Exif()
    exif[0x0112] = 6
    for number, name in enumerate(SPLIT):
        (tmp_path / name).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / name / f"{number}.png", exif=exif)
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.train.pictures.shape[1:] == (3, 16, 8)
    assert (loaded.train.pictures[:, :, :8] == 255).all()
    assert (loaded.train.pictures[:, :, 8:] == 0).all()


def test_grey_palettes_count_as_grey_and_transparency_is_noted(tmp_path: Path) -> None:
    for number, name in enumerate(SPLIT):
        (tmp_path / name).mkdir(parents=True)
        palette = Image.new("P", (8, 8), 1)
        palette.putpalette([0, 0, 0, 77, 77, 77])
        palette.save(tmp_path / name / f"{number}.gif", transparency=1)
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.train.pictures.shape[1] == 1
    assert (loaded.train.pictures == 255).all()
    assert "4 transparent pictures laid over white" in loaded.notes


def test_other_files_are_ignored_and_counted_and_hidden_ones_are_not(tmp_path: Path) -> None:
    classes(tmp_path)
    for name in ("cat/notes.txt", "dog/Thumbs.db", "cat/.DS_Store", "cat/.hidden.png", "readme.md"):
        (tmp_path / name).write_text("no picture")
    picture(tmp_path / ".cache" / "x.png")
    picture(tmp_path / "cat" / ".cache" / "x.png")
    picture(tmp_path / "cat" / "deeper" / "UPPER.JPG")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.classes == ("cat", "dog")
    assert len(loaded.train) + len(loaded.test) == 11
    assert "2 other files ignored: 1 .txt, 1 .db" in loaded.notes


def test_other_files_are_named_by_their_suffixes_the_most_frequent_first(tmp_path: Path) -> None:
    classes(tmp_path)
    (tmp_path / "cat" / "LICENCE").write_text("none")
    for kind, count in {".txt": 2, ".HEIC": 5, ".heic": 4, ".dcm": 3}.items():
        for number in range(count):
            (tmp_path / "dog" / f"x{number}{kind}").write_text("no picture")
    told = "15 other files ignored: 9 .heic, 3 .dcm, 2 .txt, 1 without suffix"
    assert told in Folder(str(tmp_path)).load(NOWHERE).notes
    (tmp_path / "dog" / "z.zip").write_text("no picture")
    assert told.replace("15", "16") + ", …" in Folder(str(tmp_path)).load(NOWHERE).notes


def test_what_a_network_disk_or_a_mac_adds_is_passed_over(tmp_path: Path) -> None:
    classes(tmp_path)
    for name in ("@eaDir", "__MACOSX", "cat/@eaDir", "dog/__MACOSX"):
        picture(tmp_path / name / "thumb.png")
        (tmp_path / name / "thumb.txt").write_text("no picture")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert (loaded.classes, len(loaded.train) + len(loaded.test)) == (("cat", "dog"), 10)
    assert loaded.notes == ("2 of 10 pictures held out for testing, 20% of each class",)


def test_a_jfif_is_read_as_the_jpeg_that_it_is(tmp_path: Path) -> None:
    classes(tmp_path)
    picture(tmp_path / "cat" / "photo.jpg", 200).rename(tmp_path / "cat" / "photo.JFIF")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert len(loaded.train) + len(loaded.test) == 11
    assert len(loaded.notes) == 1


def deep(path: Path, most: int, count: int = 5) -> Path:
    """16-bit pictures in two classes, of which one alone has a pixel as bright."""
    random = np.random.RandomState(0)
    for name in ("cat", "dog"):
        (path / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(random.randint(0, most, (8, 8), np.uint16)).save(path / name / f"{number}.png")
    Image.fromarray(np.full((8, 8), most, np.uint16)).save(path / "dog" / "0.png")
    return path


@pytest.mark.parametrize("memory", [4, 0])
def test_scans_that_would_be_read_nearly_black_are_noted(tmp_path: Path, memory: float) -> None:
    dark = Folder(str(deep(tmp_path / "dark", 4095)), memory=memory)
    told = "16-bit pictures whose brightest pixel is 4,095 of 65,535 are read nearly black: stretch them first"
    for _ in range(2):
        assert told in dark.load(tmp_path).notes
    whole = Folder(str(deep(tmp_path / "whole", 16384)), memory=memory).load(tmp_path)
    plain = Folder(str(classes(tmp_path / "plain")), memory=memory).load(tmp_path)
    assert not any("16-bit" in note for loaded in (whole, plain) for note in loaded.notes)
    none = Folder(str(deep(tmp_path / "none", 100)), memory=memory)
    with pytest.raises(BadInput, match=r"none can be held out .* \(16-bit pictures whose brightest pixel is 100 of"):
        none.load(tmp_path)


def test_unreadable_pictures_are_refused_or_skipped_by_name(tmp_path: Path) -> None:
    classes(tmp_path)
    (tmp_path / "cat" / "page.png").write_text("<html>")
    noisy = np.random.RandomState(0).randint(0, 256, (8, 8), np.uint8)
    Image.fromarray(noisy).save(tmp_path / "dog" / "cut.png")
    whole = (tmp_path / "dog" / "cut.png").read_bytes()
    (tmp_path / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "dog" / "empty.jpg").write_bytes(b"")
    text = refusal(Folder(str(tmp_path)))
    assert "pictures cannot be read (unreadable=skip leaves them out)" in text
    assert "page.png (no picture format is recognised)" in text
    assert "empty.jpg" in text
    loaded = Folder(str(tmp_path), unreadable="skip").load(NOWHERE)
    assert len(loaded.train) + len(loaded.test) == 10
    note = next(note for note in loaded.notes if "skipped" in note)
    assert note.startswith("3 pictures skipped: ")
    assert all(name in note for name in ("page.png", "cut.png", "empty.jpg"))
    (tmp_path / "cat" / "page.png").unlink()
    (tmp_path / "dog" / "empty.jpg").unlink()
    assert "1 picture cannot be read" in refusal(Folder(str(tmp_path)))  # cut.png has a good header
    for path in (tmp_path / "cat").iterdir():
        path.write_bytes(b"")
    assert "no picture can be read in cat" in refusal(Folder(str(tmp_path), unreadable="skip"))
    for path in (tmp_path / "dog").iterdir():
        path.write_bytes(b"")
    assert "no picture can be read" in refusal(Folder(str(tmp_path), unreadable="skip"))


def test_a_decompression_bomb_is_unreadable(tmp_path: Path) -> None:
    classes(tmp_path)
    picture(tmp_path / "cat" / "bomb.png", 0, "1", (9500, 9500))
    picture(tmp_path / "cat" / "worse.png", 0, "1", (14000, 14000))
    text = refusal(Folder(str(tmp_path)))
    assert "9500×9500 pixels are too many" in text
    assert "worse.png" in text
    with pytest.raises(BadInput, match="too many"):
        read_picture(tmp_path / "cat" / "bomb.png", 1, 8, 8)


def test_a_class_may_be_called_unlabelled(tmp_path: Path) -> None:
    classes(tmp_path, 5, ("cat", "unlabelled"))
    assert Folder(str(tmp_path)).load(tmp_path).classes == ("cat", "unlabelled")


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path) -> None:
    assert "no folder was given" in refusal(Folder())
    assert refusal(Folder(str(tmp_path / "missing"))).endswith("does not exist")
    assert f"missing does not exist, as seen from {Path.cwd()}" in refusal(Folder("missing"))
    assert "is no folder" in refusal(Folder(__file__))
    assert "empty of class folders" in refusal(Folder(str(tmp_path)))
    classes(tmp_path, 5, ("only",))
    assert "has 1 class folder: at least 2" in refusal(Folder(str(tmp_path)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "photo.heic").write_bytes(b"")
    assert f"{tmp_path / 'empty'} holds no pictures: add some (.png, .jpg" in refusal(Folder(str(tmp_path)))
    (tmp_path / "empty" / "photo.heic").unlink()
    classes(tmp_path, 5)
    (tmp_path / "empty").rmdir()
    for share in (0.0, 1.0, -1.0):
        assert "between 0 and 1" in refusal(Folder(str(tmp_path), test=share))


def test_test_classes_must_be_training_classes(tmp_path: Path) -> None:
    classes(tmp_path / "train", 3)
    classes(tmp_path / "test", 1, ("cat", "bird"))
    assert refusal(Folder(str(tmp_path))).endswith("classes that the training part lacks: bird")
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "CAT")
    told = "classes that the training part lacks: bird, CAT; did you mean 'cat'?"
    assert refusal(Folder(str(tmp_path))).endswith(told)
    (tmp_path / "test" / "CAT").rename(tmp_path / "test" / "cat")
    (tmp_path / "test" / "bird").rename(tmp_path / "elsewhere")
    (tmp_path / "test" / "cat" / "0.png").write_bytes(b"")
    assert f"{tmp_path / 'test'}: no picture can be read" in refusal(Folder(str(tmp_path), unreadable="skip"))


def test_a_class_of_one_picture_stays_for_training(tmp_path: Path) -> None:
    classes(tmp_path, 5)
    picture(tmp_path / "rare" / "1.png")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert 2 in loaded.train.labels
    assert 2 not in loaded.test.labels
    assert "with one picture, so not tested: rare" in loaded.notes


def test_links_that_loop_are_followed_once(tmp_path: Path) -> None:
    classes(tmp_path)
    (tmp_path / "cat" / "again").symlink_to(tmp_path / "cat")
    (tmp_path / "cat" / "up").symlink_to(tmp_path / "cat")
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "dog" / "round.txt").symlink_to(tmp_path / "dog" / "round.txt")
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert loaded.classes == ("cat", "dog")
    assert len(loaded.train) + len(loaded.test) == 10
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert "gone.png" in refusal(Folder(str(tmp_path)))


def test_odd_names_are_read_and_shown_in_one_line(tmp_path: Path) -> None:
    classes(tmp_path, 3, ("naïve 猫", "two\nlines", "%s {x}"))
    raw = os.fsencode(tmp_path) + b"/bad\xff"
    os.mkdir(raw)
    for number in range(2):
        picture(tmp_path / "spare.png").rename(os.fsdecode(raw + b"/%d.png" % number))
    loaded = Folder(str(tmp_path)).load(NOWHERE)
    assert set(loaded.classes) == {"naïve 猫", r"two\nlines", "%s {x}", r"bad\udcff"}
    for name in loaded.classes:
        name.encode()
    (tmp_path / "two\nlines" / "new\nline.png").write_text("no picture")
    assert r"new\nline.png" in refusal(Folder(str(tmp_path)))


def test_names_sort_naturally() -> None:
    names = ["10", "2", "b2", "b10", "B3", "1²", "a", ""]
    assert sorted(names, key=natural) == ["", "1²", "2", "10", "a", "b2", "B3", "b10"]


def test_sizes_are_parsed_height_first() -> None:
    assert parse_size("") is None
    assert parse_size("32") == (32, 32)
    assert parse_size("32x48") == (32, 48)
    for wrong in ("0", "x", "32x", "32x48x3", "-3", "5000", "3.5", "３２"):
        with pytest.raises(BadInput, match="no picture size"):
            parse_size(wrong)


def test_read_picture_refuses_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read as a picture"):
        read_picture(tmp_path / "missing.png", 1, 8, 8)
    with pytest.raises(BadInput, match="gives 1 channel or 3, not 2"):
        read_picture(picture(tmp_path / "x.png"), 2, 8, 8)
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(BadInput, match="floating-point"):
        read_picture(tmp_path / "float.tif", 1, 8, 8)
    (tmp_path / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    with pytest.raises(BadInput, match="no picture format is recognised"):
        read_picture(tmp_path / "script.png", 1, 8, 8)


def test_what_pillow_says_of_a_header_is_not_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubtful(_: Path) -> files.Header:
        warnings.warn("Corrupt EXIF data. Expecting to read 4 bytes but only got 3.", stacklevel=2)
        return files.Header(5, 7, grey=True, transparent=False)

    monkeypatch.setattr(files, "read_header", doubtful)
    assert files.read_size(tmp_path / "a.tiff") == (5, 7)


def test_a_damaged_tiff_is_one_line_and_no_library_says_more(tmp_path: Path, capfd) -> None:
    path = tmp_path / "a.tiff"
    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(path, compression="tiff_lzw")
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + bytes(len(whole) // 2) + whole[8 + len(whole) // 2 :])
    with pytest.raises(BadInput, match=r"a\.tiff cannot be read as a picture"):
        read_picture(path, 1, 8, 8)
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
    assert logging.getLogger("PIL").handlers  # or Python would print what Pillow logs


def test_threads_together_decode_no_more_pixels_than_there_is_room_for() -> None:
    room, now, most = Room(10), [], []

    def decode(pixels: int) -> None:
        with room.taken(pixels):
            now.append(min(pixels, 10))
            most.append(sum(now))
            time.sleep(0.002)
            now.remove(min(pixels, 10))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode, [3, 4, 6, 1, 99, 2, 5, 10] * 4))
    assert max(most) == 10
    assert room.left == 10
