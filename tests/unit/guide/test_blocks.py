"""What of a page is run, and what it answers with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guide.blocks import PageInvalid, filled, steps

PAGE = """# Title

```sql
SHOW STREAMS;
```

Prose between.

```text
old
```

```json title="PUT /v1/streams/orders"
{"columns": {"n": "int"}}
```

```json title="Answer"
{"name": "orders"}
```

```yaml title="dir/prices.yaml"
name: x
```

```
a drawing
```

<!-- not run: needs a broker -->
```bash
false
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_come_in_order_with_the_answer_behind_them(page: Path) -> None:
    found = steps(page)
    assert [(step.fence.language, step.fence.line) for step in found] == [("sql", 3), ("json", 13), ("yaml", 21)]
    assert [step.answer and step.answer.text for step in found] == ["old\n", '{"name": "orders"}\n', None]
    assert found[1].fence.request == ("PUT", "/v1/streams/orders")
    assert found[2].fence.file == "dir/prices.yaml"


def test_answers_are_written_where_they_stand(page: Path) -> None:
    first, second, _ = steps(page)
    assert first.answer is not None
    assert second.answer is not None
    text = filled(PAGE, [(first.answer, "one\ntwo"), (second.answer, "{}")])
    assert text == PAGE.replace("old\n", "one\ntwo\n").replace('{"name": "orders"}\n', "{}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```properties\na=b\n```\n", "say why not in a comment"),
        ("```json\n{}\n```\n", "is not run"),
        ("```text\nx\n```\n", "an answer without a block before it"),
        ("```yaml title='a.yaml'\nx: 1\n```\n", "is not run"),
        ('```yaml title="a.yaml"\nx: 1\n```\n\n```text\nx\n```\n', "an answer without a block before it"),
        ("- a list\n\n  ```sql\n  SHOW STREAMS;\n  ```\n", "at the left margin"),
        ("!!! note\n\n    ```sql\n    SHOW STREAMS;\n    ```\n", "at the left margin"),
        ("<!-- not run: -->\n```bash\nx\n```\n", "say why the block is not run"),
    ],
)
def test_a_block_that_nobody_would_run_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    with pytest.raises(PageInvalid, match=said):
        steps(path)
