"""What the policy is asked: text or messages, with its id and its plain text."""

import hashlib
import json
from typing import Any

Prompt = str | list[dict[str, Any]]
"""Plain text, or messages with `role` and `content`."""


def question_id(prompt: Prompt) -> str:
    """BLAKE2b-128 of the prompt's messages as JSON with sorted keys, in hexadecimal.

    Plain text counts as one message of the user. Neither the answer nor `data.system_prompt` is
    part of it.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def prompt_text(prompt: Prompt) -> str:
    """A prompt as plain text: itself, or the contents of all its messages, one after the other."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(message["content"]) for message in prompt)


def with_system(prompt: Prompt, system_prompt: str | None) -> Prompt:
    """The prompt as messages behind this system message, which replaces one of its own."""
    if system_prompt is None:
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    own = messages[1:] if messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system_prompt}, *own]
