"""The official Python clients, unmodified, against a running server whose answers are scripted (script.json).

usage: clients_test.py BASE_URL [KEY]     prints one line a check, exits 1 when one failed
"""
import asyncio
import json
import os
import sys
import time
import traceback

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["ANTHROPIC_LOG"] = os.environ["OPENAI_LOG"] = "error"

BASE = sys.argv[1]
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
MODEL = "kimi-k3"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def openai_client():
    import openai

    return openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=20)


def anthropic_client():
    import anthropic

    return anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0, timeout=20)


def user(text):
    return [{"role": "user", "content": text}]


def openai_models():
    client = openai_client()
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def openai_chat():
    reply = openai_client().chat.completions.create(model=MODEL, messages=user("Hello"))
    choice = reply.choices[0]
    assert choice.message.content == "Hello! How can I help?", choice
    assert choice.message.reasoning_content == "A greeting."
    assert choice.finish_reason == "stop" and reply.object == "chat.completion"
    usage = reply.usage
    assert usage.prompt_tokens == 86, usage  # chat.md V2: 89 ids without the 3 of the stub
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


def openai_chat_stream():
    stream = openai_client().chat.completions.create(
        model=MODEL, messages=user("Hello"), stream=True, stream_options={"include_usage": True})
    content, reasoning, finish, usage = "", "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
    assert (content, reasoning, finish) == ("Hello! How can I help?", "A greeting.", "stop")
    assert usage.prompt_tokens == 86 and usage.completion_tokens > 10


def openai_chat_unicode():
    for stream in (False, True):
        reply = openai_client().chat.completions.create(model=MODEL, messages=user("emoji"), stream=stream)
        text = "".join(c.choices[0].delta.content or "" for c in reply if c.choices) if stream \
            else reply.choices[0].message.content
        assert text == "naïve 🚀🔥 日本語", text


def openai_tools():
    client = openai_client()
    messages = user("What is the weather?")
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me look."
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    assert second.choices[0].message.content == "Report: 18 degrees"
    # The answer came back unchanged, so the prefix is exact up to the message end that the model itself wrote.
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= first.usage.prompt_tokens + first.usage.completion_tokens - 1, (cached, first.usage)


def openai_tools_stream():
    stream = openai_client().chat.completions.create(
        model=MODEL, messages=user("The weather of two cities"), tools=[TOOL], stream=True)
    calls, finish = {}, None
    for chunk in stream:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.id or ""
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""
    assert finish == "tool_calls" and sorted(calls) == [0, 1]
    assert [json.loads(c["arguments"]) for c in calls.values()] == [{"city": "Paris"}, {"city": "Łódź"}]
    assert calls[0]["id"] != calls[1]["id"] and calls[0]["name"] == "get_weather"


def openai_structured():
    import pydantic

    class Person(pydantic.BaseModel):
        name: str
        age: int

    client = openai_client()
    parsed = client.chat.completions.parse(model=MODEL, messages=user("Describe Ada"), response_format=Person)
    assert parsed.choices[0].message.parsed == Person(name="Ada", age=36)
    response = client.responses.parse(model=MODEL, input="Describe Ada", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)
    with client.chat.completions.stream(model=MODEL, messages=user("Describe Ada"), response_format=Person) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == Person(name="Ada", age=36)


def openai_options():
    client = openai_client()
    reply = client.chat.completions.create(model=MODEL, messages=user("Count"), stop=["STOP"], n=2, seed=7)
    assert [c.message.content for c in reply.choices] == ["one two three "] * 2
    assert [c.index for c in reply.choices] == [0, 1] and reply.choices[0].finish_reason == "stop"
    short = client.chat.completions.create(model=MODEL, messages=user("many words"), max_completion_tokens=20)
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 20
    probs = client.chat.completions.create(model=MODEL, messages=user("Hello"), logprobs=True, top_logprobs=2)
    content = probs.choices[0].logprobs.content
    assert "".join(t.token for t in content) == "Hello! How can I help?"
    assert len(content[0].top_logprobs) == 2 and bytes(content[0].bytes).decode() == content[0].token
    off = client.chat.completions.create(model=MODEL, messages=user("Hello"),
                                         extra_body={"thinking": {"type": "disabled"}})
    assert getattr(off.choices[0].message, "reasoning_content", None) is None
    assert off.choices[0].message.content == "Hello! How can I help?"


def openai_completions():
    client = openai_client()
    reply = client.completions.create(model=MODEL, prompt="Hello", max_tokens=50)
    assert reply.object == "text_completion" and reply.choices[0].text
    pieces = client.completions.create(model=MODEL, prompt="Hello", max_tokens=50, stream=True)
    assert "".join(c.choices[0].text for c in pieces if c.choices) == reply.choices[0].text


def openai_responses():
    client = openai_client()
    first = client.responses.create(model=MODEL, input="Hello", instructions="Be kind.")
    assert first.status == "completed" and first.output_text == "Hello! How can I help?"
    assert first.usage.output_tokens_details.reasoning_tokens > 0
    second = client.responses.create(model=MODEL, input="Count", previous_response_id=first.id)
    assert second.output_text.startswith("one two three")
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    import openai

    try:
        client.responses.retrieve(first.id)
        raise AssertionError("a deleted response was found")
    except openai.NotFoundError:
        pass


def openai_responses_stream():
    client = openai_client()
    text, kinds, numbers = "", [], []
    for event in client.responses.create(model=MODEL, input="Hello", stream=True):
        kinds.append(event.type)
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == "Hello! How can I help?"
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert numbers == sorted(set(numbers))
    with client.responses.stream(model=MODEL, input="Hello") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == text
    assert client.responses.retrieve(final.id).output_text == text


def openai_responses_tools():
    client = openai_client()
    tool = {"type": "function", **TOOL["function"]}
    first = client.responses.create(model=MODEL, input="What is the weather?", tools=[tool])
    call = next(item for item in first.output if item.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    second = client.responses.create(
        model=MODEL, tools=[tool], previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}])
    assert second.output_text == "Report: 18 degrees"
    kinds = [e.type for e in client.responses.create(model=MODEL, input="What is the weather?", tools=[tool],
                                                     stream=True)]
    assert "response.function_call_arguments.done" in kinds


def openai_responses_cancel():
    client = openai_client()
    stream = client.responses.create(model=MODEL, input="endless", stream=True)
    for event in stream:
        if event.type == "response.created":
            assert client.responses.cancel(event.response.id).status == "cancelled"
        last = event
    assert last.type == "response.incomplete" and last.response.status == "cancelled"
    assert client.responses.retrieve(last.response.id).status == "cancelled"


def openai_responses_logprobs():
    response = openai_client().responses.create(
        model=MODEL, input="Hello", include=["message.output_text.logprobs"], top_logprobs=2)
    part = response.output[-1].content[0]
    assert "".join(token.token for token in part.logprobs) == part.text == "Hello! How can I help?"
    assert len(part.logprobs[0].top_logprobs) == 2


def openai_errors():
    import openai

    client = openai_client()
    for kwargs, kind, param in [
        ({"messages": user("x"), "temperature": 3}, openai.BadRequestError, "temperature"),
        ({"messages": user("x"), "model": "gpt-9"}, openai.NotFoundError, "model"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": user("many words " * 200000)}, openai.BadRequestError, "messages"),
    ]:
        try:
            client.chat.completions.create(**{"model": MODEL, **kwargs})
            raise AssertionError(f"accepted: {str(kwargs)[:80]}")
        except kind as error:
            assert error.param == param, (error.param, param)
            assert error.request_id
    if KEY != "none":
        try:
            openai.OpenAI(base_url=BASE + "/v1", api_key="wrong-key", max_retries=0).models.list()
            raise AssertionError("a wrong key was accepted")
        except openai.AuthenticationError:
            pass


def openai_async():
    import openai

    async def one(client, i):
        stream = await client.chat.completions.create(model=MODEL, messages=user(f"many words {i}"), stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    async def everything():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*[one(client, i) for i in range(24)])

    assert asyncio.run(everything()) == [" word" * 200] * 24


def anthropic_messages():
    client = anthropic_client()
    message = client.messages.create(model=MODEL, max_tokens=200, messages=user("Hello"), system="Be kind.")
    kinds = [block.type for block in message.content]
    assert kinds[-1] == "text" and message.content[-1].text == "Hello! How can I help?"
    assert message.stop_reason == "end_turn" and message.usage.input_tokens + message.usage.cache_read_input_tokens > 0
    count = client.messages.count_tokens(model=MODEL, messages=user("Hello"), system="Be kind.")
    assert count.input_tokens > 10
    short = client.messages.create(model=MODEL, max_tokens=5, messages=user("many words"))
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 5
    stopped = client.messages.create(model=MODEL, max_tokens=99, messages=user("Count"), stop_sequences=["STOP"])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "STOP"


def anthropic_stream():
    client = anthropic_client()
    with client.messages.stream(model=MODEL, max_tokens=200, messages=user("Hello"),
                                thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "Hello! How can I help?"
    assert final.content[0].type == "thinking" and final.content[0].thinking == "A greeting."
    assert final.stop_reason == "end_turn" and final.usage.output_tokens > 5


def anthropic_tools():
    client = anthropic_client()
    tool = {"name": "get_weather", "description": "Weather", "input_schema": TOOL["function"]["parameters"]}
    messages = user("What is the weather?")
    for streamed in (False, True):
        if streamed:
            with client.messages.stream(model=MODEL, max_tokens=500, messages=messages, tools=[tool]) as stream:
                first = stream.get_final_message()
        else:
            first = client.messages.create(model=MODEL, max_tokens=500, messages=messages, tools=[tool])
        assert first.stop_reason == "tool_use"
        use = next(block for block in first.content if block.type == "tool_use")
        assert use.name == "get_weather" and use.input == {"city": "Paris"}
        second = client.messages.create(
            model=MODEL, max_tokens=500, tools=[tool],
            messages=messages + [{"role": "assistant", "content": first.content},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                               "content": "18 degrees"}]}])
        assert second.content[-1].text == "Report: 18 degrees"


def anthropic_errors():
    import anthropic

    client = anthropic_client()
    try:
        client.messages.create(model="claude-9", max_tokens=5, messages=user("x"))
        raise AssertionError("an unknown model was accepted")
    except anthropic.NotFoundError as error:
        assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error"
        assert error.request_id
    try:
        client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "robot", "content": "x"}])
        raise AssertionError("an unknown role was accepted")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"


def litellm_chat():
    import litellm

    litellm.telemetry = False
    arguments = {"model": "openai/" + MODEL, "api_base": BASE + "/v1", "api_key": KEY}
    reply = litellm.completion(messages=user("Hello"), **arguments)
    assert reply.choices[0].message.content == "Hello! How can I help?"
    assert reply.choices[0].message.reasoning_content == "A greeting."
    text = "".join(c.choices[0].delta.content or ""
                   for c in litellm.completion(messages=user("Hello"), stream=True, **arguments))
    assert text == "Hello! How can I help?"
    tools = litellm.completion(messages=user("What is the weather?"), tools=[TOOL], **arguments)
    assert tools.choices[0].finish_reason == "tool_calls"
    assert tools.choices[0].message.tool_calls[0].function.name == "get_weather"
    native = litellm.completion(model="anthropic/" + MODEL, api_base=BASE, api_key=KEY, messages=user("Hello"),
                                max_tokens=100)
    assert native.choices[0].message.content == "Hello! How can I help?"


def langchain_chat():
    import pydantic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    class Person(pydantic.BaseModel):
        name: str
        age: int

    model = ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key=KEY, max_retries=0)
    assert model.invoke("Hello").content == "Hello! How can I help?"
    assert "".join(chunk.content for chunk in model.stream("Hello")) == "Hello! How can I help?"
    bound = model.bind_tools([TOOL])
    asked = HumanMessage("What is the weather?")
    first = bound.invoke([asked])
    assert first.tool_calls[0]["name"] == "get_weather" and first.tool_calls[0]["args"] == {"city": "Paris"}
    result = ToolMessage("18 degrees", tool_call_id=first.tool_calls[0]["id"])
    assert bound.invoke([asked, first, result]).content == "Report: 18 degrees"
    assert model.with_structured_output(Person).invoke("Describe Ada") == Person(name="Ada", age=36)


CHECKS = [
    openai_models, openai_chat, openai_chat_stream, openai_chat_unicode, openai_tools, openai_tools_stream,
    openai_structured, openai_options, openai_completions, openai_responses, openai_responses_stream,
    openai_responses_tools, openai_responses_cancel,
    openai_responses_logprobs, openai_errors, openai_async, anthropic_messages, anthropic_stream, anthropic_tools,
    anthropic_errors, litellm_chat, langchain_chat,
]


def main():
    failed = 0
    only = sys.argv[3:]
    for check in CHECKS:
        if only and check.__name__ not in only:
            continue
        began = time.monotonic()
        try:
            check()
            print(f"ok    {check.__name__} ({time.monotonic() - began:.2f} s)", flush=True)
        except Exception:  # one client's failure must not hide the others
            failed += 1
            print(f"FAIL  {check.__name__}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


sys.exit(main())
