import importlib.util
import itertools
import json
import logging
from pathlib import Path

import pytest
import torch

from evenodds import toy
from evenodds.cli import main
from evenodds.embedding_file import EmbeddingFile, _safetensors_head, embed
from evenodds.embeddings import Encoder, embed_with_model, load_encoder
from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.files import write_tensors
from evenodds.questions import question_id

from tiny import save_policy

TEXTS = [f"{number}+{number**2}=" for number in range(50)]
IDS = [question_id(text) for text in TEXTS]


class KilledError(Exception):
    pass


def fake_encoder(source="fake@1"):
    """(length, sum of characters, 1): no two texts alike, whatever they are embedded with."""

    def encode(texts):
        return torch.tensor([[len(text), sum(map(ord, text)) / 100, 1.0] for text in texts])

    return Encoder(source, lambda texts: [len(text) for text in texts], encode)


def make(out, ids=IDS, texts=TEXTS, spec=None, **settings):
    settings = {"batch_size": 4, "shard_size": 12, **settings}
    return embed(ids, texts, spec or fake_encoder(), out, **settings)


def killed_after(count):
    def track(items, description):
        yield from itertools.islice(items, count)
        raise KilledError

    return track


def counting(batches):
    def track(items, description):
        for rows in items:
            batches.append(rows)
            yield rows

    return track


@pytest.fixture
def out(tmp_path):
    return tmp_path / "e.safetensors"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_embedded_comes_back_in_the_order_of_the_pool(out, dtype):
    made = make(out, dtype=dtype)
    read = EmbeddingFile.read(out)
    expected = fake_encoder().encode(TEXTS).to(getattr(torch, dtype))
    assert torch.equal(made.values_NE, expected)
    assert torch.equal(read.values_NE, expected)
    assert read.ids == tuple(IDS)
    assert read.model == "fake@1"
    assert len(read) == 50
    assert list(out.parent.iterdir()) == [out]


def test_the_file_is_what_the_library_writes(out):
    from safetensors.torch import load_file, save_file

    make(out)
    tensors = load_file(out)
    again = out.with_name("again.safetensors")
    save_file(tensors, again)
    assert sorted(tensors) == ["embeddings", "ids"]
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in load_file(again).items())


def test_embeddings_are_put_in_the_order_that_is_asked_for(out):
    file = make(out, dtype="float32")
    assert file.aligned(IDS).data_ptr() == file.values_NE.data_ptr()  # not copied
    rows = [7, 3, 40]
    assert torch.equal(file.aligned([IDS[row] for row in rows]), file.values_NE[rows])
    other = question_id("other")
    with pytest.raises(DataError, match=f"another pool\n.*1 of 2 questions, such as {other}"):
        file.aligned([IDS[0], other])


@pytest.mark.parametrize("batches_done", [0, 5, 12])
def test_a_killed_run_goes_on_to_the_same_bytes(out, batches_done):
    whole = out.with_name("whole.safetensors")
    make(whole)
    with pytest.raises(KilledError):
        make(out, track=killed_after(batches_done))
    shards = out.with_name("e.safetensors.parts")
    assert len(list(shards.glob("*"))) == batches_done // 3  # 12 questions in 3 batches of 4
    assert not out.exists()
    batches = []
    make(out, track=counting(batches))
    assert len(batches) == 13 - batches_done // 3 * 3  # 50 questions: 4 shards of 3, and one
    assert out.read_bytes() == whole.read_bytes()
    assert not shards.exists()


def test_a_run_killed_while_the_file_is_put_together(out, monkeypatch):
    whole = out.with_name("whole.safetensors")
    make(whole)

    def killed(*sizes):
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("evenodds.embedding_file._safetensors_head", killed)
        with pytest.raises(KilledError):
            make(out)
    batches = []
    make(out, track=counting(batches))
    assert batches == []
    assert out.read_bytes() == whole.read_bytes()


def test_a_damaged_shard_is_made_again(out, caplog):
    whole = out.with_name("whole.safetensors")
    make(whole)
    with pytest.raises(KilledError):
        make(out, track=killed_after(9))
    shard = out.with_name("e.safetensors.parts") / "000001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-5])
    batches = []
    with caplog.at_level(logging.WARNING):
        make(out, track=counting(batches))
    assert "000001.safetensors is damaged" in caplog.text
    assert len(batches) == 3 + 4
    assert out.read_bytes() == whole.read_bytes()


def test_shards_that_were_cut_otherwise_are_made_again(out):
    with pytest.raises(KilledError):
        make(out, track=killed_after(9))
    make(out, shard_size=8)
    assert torch.equal(EmbeddingFile.read(out).values_NE, fake_encoder().encode(TEXTS).half())


OTHERS = {
    "model": {"spec": fake_encoder("fake@2")},
    "type": {"dtype": "bfloat16"},
    "pool": {"ids": IDS[:49], "texts": TEXTS[:49]},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_shards_and_files_of_another_model_type_or_pool_are_refused(out, change):
    with pytest.raises(KilledError):
        make(out, track=killed_after(9))
    with pytest.raises(DataError, match=r"e\.safetensors\.parts holds other embeddings"):
        make(out, **change)
    make(out)
    before = out.read_bytes()
    with pytest.raises(DataError, match=r"e\.safetensors holds other embeddings"):
        make(out, **change)
    assert out.read_bytes() == before


def test_a_complete_file_is_opened_as_it_is(out):
    make(out)
    batches = []
    file = make(out, spec=fake_encoder("another name@1"), track=counting(batches))
    assert batches == []
    assert file.ids == tuple(IDS)


@pytest.mark.parametrize("keep", [0, 4, 60, 700, -1])
def test_truncated_files_are_refused(out, keep):
    make(out)
    out.write_bytes(out.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"e\.safetensors cannot be read"):
        EmbeddingFile.read(out)


def test_files_that_are_missing_or_hold_something_else(out):
    with pytest.raises(DataError, match="no such embedding file"):
        EmbeddingFile.read(out)
    write_tensors(out, {"difficulty": torch.zeros(3)}, {"format": 1})
    with pytest.raises(DataError, match="not an embedding file"):
        EmbeddingFile.read(out)
    write_tensors(out, {"embeddings": torch.zeros(3, 2)}, {"format": 1, "kind": "embeddings"})
    with pytest.raises(CheckpointError, match="lacks ids or embeddings"):
        EmbeddingFile.read(out)


@pytest.mark.parametrize(("value", "dtype"), [(float("nan"), "float32"), (1e5, "float16")])
def test_numbers_that_are_not_finite_are_refused(out, value, dtype):
    def encode(texts):
        return torch.tensor([[value if text == TEXTS[9] else 0.0] for text in texts])

    encoder = Encoder("broken@1", lambda texts: [1] * len(texts), encode)
    with pytest.raises(DataError, match=f"not finite in {dtype}\n.*{IDS[9]}"):
        make(out, spec=encoder, dtype=dtype)
    ids = torch.tensor([list(bytes.fromhex(IDS[0]))], dtype=torch.uint8)
    tensors = {"embeddings": torch.tensor([[value]]).half(), "ids": ids}
    write_tensors(out, tensors, {"format": 1, "kind": "embeddings", "model": "hand@made"})
    with pytest.raises(DataError, match="not finite in float16"):
        EmbeddingFile.read(out).aligned(IDS[:1])


def test_ids_and_types_that_cannot_be_stored(out):
    with pytest.raises(DataError, match="no content ids"):
        make(out, ids=["q1", *IDS[1:]])
    with pytest.raises(ConfigError, match="cannot be stored so"):
        make(out, dtype="int8")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_file_is_mapped_and_not_copied(out):
    def megabytes():
        status = Path("/proc/self/status").read_text()
        return sum(int(line.split()[1]) for line in status.split("\n") if line[:4] == "RssA") / 1024

    count, width = 1000, 2**20  # 4 GB with nothing in it
    header = {"format": 1, "kind": "embeddings", "model": "m@1", "dtype": "float32"}
    head = _safetensors_head(count, width, header)
    with out.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + count * width * 4 + count * 16)
    before = megabytes()
    values = EmbeddingFile.read(out).values_NE
    assert values.shape == (count, width)
    assert values[500].sum().item() == 0.0
    assert megabytes() - before < 100


def test_a_named_model_gives_the_same_as_in_memory(out, tmp_path):
    folder = save_policy(tmp_path / "policy")
    file = make(out, spec=folder, dtype="float32")
    memory = embed_with_model(folder, TEXTS, batch_size=8, cache=tmp_path / "cache")
    assert torch.allclose(file.values_NE, memory.values_NE, atol=1e-5)
    assert file.model == memory.model


def test_tfidf_puts_similar_questions_together(out):
    pytest.importorskip("sklearn")
    themes = ["apples and pears", "trains and stations", "circles and squares"]
    texts = [f"{themes[n % 3]} number {n}, what is it?" for n in range(60)]
    ids = [question_id(text) for text in texts]
    first = make(out, ids, texts, "tfidf", dtype="float32")
    values = torch.nn.functional.normalize(first.values_NE - first.values_NE.mean(dim=0))
    similar = values @ values.T
    assert similar[0, 3] > similar[0, 1] + 0.5
    again = make(out.with_name("again.safetensors"), ids, texts, "tfidf", dtype="float32")
    assert torch.equal(first.values_NE, again.values_NE)
    assert load_encoder("tfidf", texts[1:]).source != first.model
    with pytest.raises(DataError, match="TF-IDF finds no words"):
        load_encoder("tfidf", ["?", "!"]).encode(["?"])


def test_the_command_embeds_a_label_table_and_goes_on(out, capsys):
    table = out.with_name("labels.csv")
    rows = [f"{text},small,8,{number % 9}" for number, text in enumerate(TEXTS)]
    table.write_text("\n".join(["question,policy,n_samples,n_correct", *rows]))
    arguments = ["embed", str(table), "--model", "toy", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "50 of 50" in printed.err
    assert str(out) in printed.out
    file = EmbeddingFile.read(out)
    assert file.ids == tuple(IDS)
    assert file.values_NE.dtype == torch.float16
    assert main(arguments) == 0
    assert main([*arguments, "--dtype", "float32"]) == 2
    assert "holds other embeddings" in capsys.readouterr().err


def test_the_command_embeds_a_pool(out, tmp_path):
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps(row) + "\n" for row in toy.pool(64)))
    model = save_policy(tmp_path / "policy")
    settings = ["--dtype", "bfloat16", "--batch-size", "16"]
    assert main(["embed", str(pool), "--model", model, "--out", str(out), *settings]) == 0
    file = EmbeddingFile.read(out)
    assert file.ids == tuple(question_id(row["question"]) for row in toy.pool(64))
    assert file.values_NE.shape == (64, 32)
    assert file.values_NE.dtype == torch.bfloat16


def test_the_command_names_what_is_missing(out, tmp_path, capsys):
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"question": "1+1=", "answer": "2"}\n')
    common = ["embed", str(pool), "--out", str(out), "--model"]
    has_library = importlib.util.find_spec("sentence_transformers") is not None
    missing = "no-such-package" if has_library else '"evenodds[sentence-transformers]"'
    for model, message in (
        ("no/such-model", "'no/such-model' cannot be loaded"),
        ("package:no_such_package/x.gguf", "pip install no-such-package"),
        ("sentence-transformers:package:no_such_package/m", f"pip install {missing}"),
    ):
        assert main([*common, model]) == 2
        assert message in capsys.readouterr().err
