import hashlib
import sys
import threading

import numpy as np
import pytest
from drawn import JPEG, JPEG_PIXELS, flat, pets, png, unpng
from trainer_process import events, train, trainer

from trainer import decoders, pictures
from trainer.events import Stop
from trainer.workloads import catdog


def by_hand():
    return decoders.checked(unpng), "hand"


def read(folder, split="train", classes=2, side=8):
    return pictures.dataset(str(folder), split, classes, side, by_hand)


def test_labels_are_the_folders_in_order_and_pixels_come_when_asked_for(tmp_path):
    found = read(pets(tmp_path, 3))
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (found.name, found.count) == ("pictures", 6)
    taken = found.images[np.array([5, 0])]
    assert (taken.dtype, taken.shape) == (np.uint8, (2, 8, 8, 3))
    assert (taken[0] == (10, 10, 250)).all()
    assert (taken[1] == (250, 10, 10)).all()
    assert found.images[4:9].shape == (2, 8, 8, 3)
    assert "3 in cats, 3 in dogs" in found.note
    assert "decoded by hand" in found.note


def test_the_classes_may_stand_in_the_folder_itself_and_then_nothing_tests(tmp_path):
    pets(tmp_path, 3)
    assert read(tmp_path / "train").count == 6
    assert read(tmp_path / "train", "test") is None
    assert read(tmp_path, "test").count == 4


def test_a_class_has_the_same_label_in_the_test_however_its_folder_is_written(tmp_path):
    pets(tmp_path, 1)
    (tmp_path / "test" / "dogs").rename(tmp_path / "test" / "Dogs")
    found = read(tmp_path, "test")
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert (found.images[:1] == (250, 10, 10)).all()
    assert "2 in cats, 2 in Dogs" in found.note
    (tmp_path / "test" / "Dogs").rename(tmp_path / "test" / "hounds")
    with pytest.raises(Stop, match=r"test has the folders cats, hounds, and .*train has cats, dogs") as stopped:
        read(tmp_path, "test")
    assert stopped.value.kind == "data"


def test_a_link_to_nowhere_is_named(tmp_path):
    (pets(tmp_path, 1) / "train" / "cats" / "cats.7.png").symlink_to("nowhere")
    with pytest.raises(Stop, match=r"cats\.7\.png: No such file or directory"):
        read(tmp_path)


def test_empty_files_are_counted_before_any_picture_is_asked_for(tmp_path):
    pets(tmp_path, 1)
    (tmp_path / "test" / "cats" / "cats.0.png").write_bytes(b"")
    with pytest.raises(Stop, match=r"cats\.0\.png is not an image \(it is empty\); that makes 1 broken ones of 4"):
        read(tmp_path, "test")


def test_a_folder_of_tests_is_no_class_and_nothing_hidden_is_one_or_an_image(tmp_path):
    pets(tmp_path, 1)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in ".ipynb_checkpoints/1.png", "train/cats/._cats.0.png":
        (tmp_path / name).write_bytes(b"not an image")
    for name in "cats", "dogs":
        (tmp_path / "train" / name).rename(tmp_path / name)
    (tmp_path / "train").rmdir()
    (tmp_path / "test" / "loose.png").write_bytes(png(flat((1, 2, 3))))
    assert read(tmp_path).labels.tolist() == [0, 1]


def test_the_nearest_pixel_is_that_under_the_middle():
    ramp = np.repeat(np.arange(6, dtype=np.uint8)[:, None], 3, axis=1)[None].repeat(4, axis=0)
    assert pictures.nearest(ramp, 3)[0, :, 0].tolist() == [1, 3, 5]
    assert pictures.nearest(ramp, 12)[0, :, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert pictures.nearest(ramp, 4).shape == (4, 4, 3)


def test_the_sha256_is_of_names_and_sizes(tmp_path):
    pets(tmp_path, 1)
    paths = [f"{name}/{name}.0.png" for name in ("cats", "dogs")]
    said = "".join(f"{path} {(tmp_path / 'train' / path).stat().st_size}\n" for path in paths)
    first = read(tmp_path).sha256
    assert first == hashlib.sha256(said.encode()).hexdigest()
    (tmp_path / "train" / paths[0]).write_bytes(b"longer than it was" * 99)
    assert read(tmp_path).sha256 != first


def test_a_broken_picture_is_named_once_and_the_next_of_its_folder_taken(tmp_path, capsys):
    pets(tmp_path)
    broken = tmp_path / "train" / "dogs" / "dogs.0.png"
    broken.write_bytes(broken.read_bytes()[:60])
    (tmp_path / "train" / "cats" / "cats.9.png").write_bytes(b"")
    found = read(tmp_path)
    everything = found.images[:]
    assert (everything[12] == (10, 10, 250)).all()
    assert (everything[11] == (250, 10, 10)).all()
    assert (found.images[12:13] == (10, 10, 250)).all()
    err = capsys.readouterr().err
    assert err.count(f"{broken} is not an image") == 1
    assert "cats.9.png is not an image (it is empty): left out, and replaced by the next of its folder" in err


def test_many_threads_name_a_broken_picture_once(tmp_path, capsys):
    pets(tmp_path)
    (tmp_path / "train" / "cats" / "cats.3.png").write_bytes(b"GIF89a")
    found = read(tmp_path)
    threads = [threading.Thread(target=lambda: found.images[:12]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capsys.readouterr().err.count("neither JPEG nor PNG") == 1


def test_more_than_a_few_broken_ones_are_no_data(tmp_path):
    pets(tmp_path)
    for k in range(3):
        (tmp_path / "train" / "cats" / f"cats.{k}.png").write_bytes(b"no")
    with pytest.raises(Stop, match=r"cats\.2\.png.*3 broken ones of 24: too many") as stopped:
        read(tmp_path).images[:]
    assert stopped.value.kind == "data"


@pytest.mark.parametrize("missing", ["all", "dogs", "folder"])
def test_a_folder_without_two_classes_says_what_is_wanted(tmp_path, missing):
    pets(tmp_path, 1)
    folder = tmp_path / "nowhere" if missing == "folder" else tmp_path
    for path in tmp_path.glob("train/*/*" if missing == "all" else "train/dogs/*"):
        path.unlink()
    with pytest.raises(Stop, match="is not a folder" if missing == "folder" else "it needs 2 folders of images") as it:
        read(folder)
    assert it.value.kind == "data"


@pytest.mark.tensorflow
def test_tensorflow_decodes_jpeg_and_png_where_there_is_no_pillow():
    import tensorflow

    assert tensorflow.__version__
    decode, who = decoders.tensorflow()
    decode = decoders.checked(decode)
    assert who == f"TensorFlow {tensorflow.__version__}"
    drawing = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    assert (decode(png(drawing)) == drawing).all()
    assert np.abs(decode(JPEG).astype(int) - JPEG_PIXELS).max() <= 10  # JPEG's compression is lossy
    for torn in JPEG[:300], JPEG[:50], png(drawing)[:50]:
        with pytest.raises(decoders.Undecodable):
            decode(torn)


def test_without_anybody_who_decodes_it_is_said_what_is_missing(monkeypatch):
    for name in "PIL", "tensorflow", "torchvision":
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Stop, match=r"neither Pillow nor TensorFlow nor torchvision.*pip install pillow"):
        decoders.decoder()


@pytest.mark.tensorflow
def test_real_pictures_are_trained_on_and_tested(tmp_path):
    said = "--framework", "tf2", "--device", "cpu", "--batch", 2, "--steps", 2, "--data", pets(tmp_path / "pets", 3)
    out = train("catdog", "--out", tmp_path / "run", *said)
    (begun,) = events(tmp_path / "run", "start")
    assert (begun["dataset"], begun["dataset_images"]) == ("pictures", 6)
    assert begun["dataset_sha256"] == read(tmp_path / "pets", side=256).sha256
    assert f"Training on 6 pictures of {tmp_path / 'pets'}" in out
    assert events(tmp_path / "run", "eval")[0]["examples"] == 4


@pytest.mark.tensorflow
def test_too_many_broken_ones_end_a_training_by_their_names_and_without_a_traceback(tmp_path):
    found = pets(tmp_path / "pets", 3)
    for path in (tmp_path / "pets" / "train").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:60])
    said = "--framework", "tf2", "--device", "cpu", "--batch", 2, "--steps", 2, "--data", found
    code, _, err = trainer("catdog", "--out", tmp_path / "run", *said)
    (told,) = events(tmp_path / "run", "error")
    assert (code, told["kind"]) == (1, "data")
    assert "too many to leave out" in told["message"]
    assert "Traceback" not in err
    assert "{{" not in err
    assert "[Op:" not in err


def test_catdog_says_that_it_reads_pictures():
    assert catdog.DATA_FOLDER == "pictures"
