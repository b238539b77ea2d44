// The official Node clients, unmodified, against a running server whose answers are scripted (script.json).
// usage: node clients_test.mjs BASE_URL [KEY]
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [base, key = "none"] = process.argv.slice(2);
const model = "kimi-k3";
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { type: "function", function: { name: "get_weather", parameters } };

const checks = {
  async openai_chat() {
    const reply = await openai.chat.completions.create({ model, messages: user("Hello") });
    assert.equal(reply.choices[0].message.content, "Hello! How can I help?");
    assert.equal(reply.usage.prompt_tokens, 86);
  },
  async openai_stream() {
    const stream = await openai.chat.completions.create({ model, messages: user("emoji"), stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    assert.equal(text, "naïve 🚀🔥 日本語");
  },
  async openai_tools() {
    const runner = openai.chat.completions.runTools({
      model,
      messages: user("What is the weather?"),
      tools: [{ type: "function", function: { ...tool.function, parse: JSON.parse,
                                              function: ({ city }) => `18 degrees in ${city}` } }],
    });
    assert.equal(await runner.finalContent(), "Report: 18 degrees in Paris");
  },
  async openai_responses() {
    const reply = await openai.responses.create({ model, input: "Hello" });
    assert.equal(reply.output_text, "Hello! How can I help?");
    const kinds = [];
    for await (const event of await openai.responses.create({ model, input: "Hello", stream: true })) kinds.push(event.type);
    assert.equal(kinds.at(-1), "response.completed");
  },
  async openai_abort() {
    const stream = await openai.chat.completions.create({ model, messages: user("many words"), stream: true });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta?.content) break;
    }
    stream.controller.abort();
  },
  async openai_errors() {
    await assert.rejects(openai.chat.completions.create({ model, messages: user("x"), top_p: 7 }),
                         (error) => error.status === 400 && error.param === "top_p");
  },
  async anthropic_messages() {
    const message = await anthropic.messages.create({ model, max_tokens: 100, messages: user("Hello") });
    assert.equal(message.content.at(-1).text, "Hello! How can I help?");
  },
  async anthropic_stream() {
    const stream = anthropic.messages.stream({ model, max_tokens: 500, messages: user("What is the weather?"),
                                               tools: [{ name: "get_weather", input_schema: parameters }] });
    const message = await stream.finalMessage();
    assert.equal(message.stop_reason, "tool_use");
    assert.deepEqual(message.content.at(-1).input, { city: "Paris" });
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok    node ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  node ${name}\n${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
