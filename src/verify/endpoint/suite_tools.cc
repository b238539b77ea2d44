// Tool calls and schema-bound answers: the form that was asked for is the form that comes.
#include <nlohmann/json.hpp>

#include "verify/endpoint/schema_order.h"
#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

constexpr std::int64_t kToolTokens = 256;  // of schemas that can end in a few tokens

Json look_up_tool(const std::string& name, const Json& parameters) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"description", "Looks something up."}, {"parameters", parameters}}}};
}

// Schemas whose shortest instances are short, so that any model comes to an end: what a forced_call call must match.
struct ShortSchema {
  const char* id;
  const char* schema;
};
constexpr ShortSchema kShortSchemas[] = {
    {"enum",
     R"({"type":"object","properties":{"unit":{"enum":["celsius","fahrenheit"]}},"required":["unit"],"additionalProperties":false})"},
    {"boolean",
     R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false})"},
    {"const",
     R"({"type":"object","properties":{"kind":{"const":"city"}},"required":["kind"],"additionalProperties":false})"},
    {"integer",
     R"({"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"],"additionalProperties":false})"},
    {"nested",
     R"({"type":"object","properties":{"a":{"type":"object","properties":{"b":{"enum":[1,2]}},"required":["b"],"additionalProperties":false}},"required":["a"],"additionalProperties":false})"},
    {"array",
     R"({"type":"object","properties":{"l":{"type":"array","items":{"enum":["x","y"]},"minItems":2,"maxItems":2}},"required":["l"],"additionalProperties":false})"},
    {"two",
     R"({"type":"object","properties":{"p":{"type":"boolean"},"q":{"enum":["é","漢"]}},"required":["p","q"],"additionalProperties":false})"},
    {"ref",
     R"({"type":"object","$defs":{"c":{"enum":["red","green"]}},"properties":{"colour":{"$ref":"#/$defs/c"}},"required":["colour"],"additionalProperties":false})"},
    {"any_of",
     R"({"type":"object","properties":{"v":{"anyOf":[{"type":"null"},{"enum":[7]}]}},"required":["v"],"additionalProperties":false})"},
};

// "" if the arguments are JSON that the schema allows.
std::string arguments_difference(const Json& schema, const std::string& text) {
  const auto arguments = parse_json(text);
  if (!arguments.ok()) return "is no JSON: " + shown_text(text);
  const auto matches = matches_schema(schema, *arguments);
  if (!matches.ok()) return matches.status().message();
  return *matches ? "" : "does not match the schema: " + shown_text(text);
}

std::string call_difference(const ChatAnswer& answer, const std::string& name, const Json& schema) {
  if (!answer.ok()) return answer.refusal();
  if (!answer.faults.empty()) return answer.faults.front();
  if (answer.calls.size() != 1) return fmt::format("expected one call, found {}", answer.calls.size());
  const AnswerCall& call = answer.calls.front();
  if (call.name != name) return "calls " + shown_text(call.name);
  if (call.id.empty()) return "the call has no id";
  // Servers differ in the reason of a forced_call call (chat.md 3.5); both words are right.
  if (answer.finish != "tool_calls" && answer.finish != "stop") return "finish_reason is " + shown_text(answer.finish);
  return arguments_difference(schema, call.arguments);
}

Json forced_call(const Session& session, const Json& tools, const Json& choice) {
  Json body = session.plain("What is the weather in Paris? Use the tool.", kToolTokens);
  body["tools"] = tools;
  body["tool_choice"] = choice;
  return body;
}

Status check_named_calls(const SuiteContext& context) {
  Cases whole("tools", "named call matches its schema");
  Cases stream("tools", "the same, streamed");
  for (const ShortSchema& entry : kShortSchemas) {
    PERIGEE_ASSIGN_OR_RETURN(const Json schema, parse_json(entry.schema));
    const Json choice = {{"type", "function"}, {"function", {{"name", "look_up"}}}};
    const Json body = forced_call(
        *context.session, Json::array({look_up_tool("other", {{"type", "object"}}), look_up_tool("look_up", schema)}),
        choice);
    for (const bool streamed : {false, true}) {
      Cases& cases = streamed ? stream : whole;
      PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, context.session->chat(body, streamed));
      if (answer.ok() && answer.cut()) {
        cases.skip(std::string(entry.id) + ": cut after " + std::to_string(kToolTokens) + " tokens");
      } else {
        cases.add(entry.id, call_difference(answer, "look_up", schema));
      }
    }
  }
  context.add(whole.finish());
  context.add(stream.finish());
  return {};
}

Status check_choices(const SuiteContext& context) {
  PERIGEE_ASSIGN_OR_RETURN(const Json schema, parse_json(kShortSchemas[0].schema));
  const Json tools = Json::array({look_up_tool("look_up", schema)});
  Cases cases("tools", "tool_choice");
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer none, context.session->chat(forced_call(*context.session, tools, "none")));
  cases.add("none", !none.ok() ? none.refusal() : none.calls.empty() ? "" : "a call was made");
  Json any = forced_call(*context.session, tools, "required");
  any["parallel_tool_calls"] = false;
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer required, context.session->chat(any));
  if (required.ok() && required.cut()) {
    cases.skip("required: cut before a call");
  } else {
    cases.add("required", call_difference(required, "look_up", schema));
  }
  // Results come back: order and ids of calls are the client's.
  Json history = forced_call(*context.session, tools, "auto");
  history["max_tokens"] = 8;
  history["messages"].push_back({{"role", "assistant"},
                                 {"content", ""},
                                 {"tool_calls",
                                  {{{"id", "look_up:0"},
                                    {"type", "function"},
                                    {"function", {{"name", "look_up"}, {"arguments", R"({"unit":"celsius"})"}}}}}}});
  history["messages"].push_back({{"role", "tool"}, {"tool_call_id", "look_up:0"}, {"content", "21 degrees"}});
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer after, context.session->chat(history));
  cases.add("a result is accepted", after.refusal());
  context.add(cases.finish());
  return {};
}

// A choice of schemas that a model without sense can end too.
bool short_schema(const Json& item) {
  return item.value("level", "") == "core" && item.contains("schema") && item["schema"].is_object();
}

}  // namespace

Status run_tools(const SuiteContext& context) {
  PERIGEE_RETURN_IF_ERROR(check_named_calls(context));
  return check_choices(context);
}

Status run_schemas(const SuiteContext& context) {
  Session& session = *context.session;
  Cases bound("schemas", "json_schema answers match");
  for (const ShortSchema& entry : kShortSchemas) {
    PERIGEE_ASSIGN_OR_RETURN(const Json schema, parse_json(entry.schema));
    Json body = session.plain("Answer in JSON.", kToolTokens);
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", schema}}}};
    PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, session.chat(body));
    if (answer.ok() && answer.cut()) {
      bound.skip(std::string(entry.id) + ": cut after " + std::to_string(kToolTokens) + " tokens");
    } else {
      bound.add(entry.id, answer.ok() ? arguments_difference(schema, answer.content) : answer.refusal());
    }
  }
  context.add(bound.finish());

  // The whole core list as look_up_tool parameters: accepted, and what comes within the limit matches.
  PERIGEE_ASSIGN_OR_RETURN(const Json document, vector_document(*context.options, "schema.json"));
  Cases accepted("schemas", "core schemas as tool parameters");
  std::size_t judged = 0;
  for (const Json* item : spread(*context.options, document["cases"], short_schema)) {
    const Json schema = {{"type", "object"},
                         {"properties", {{"value", (*item)["schema"]}}},
                         {"required", {"value"}},
                         {"additionalProperties", false}};
    if ((*item)["schema"].dump().find("\"#") != std::string::npos) continue;  // its references point to its own root
    const Json choice = {{"type", "function"}, {"function", {{"name", "look_up"}}}};
    Json body = forced_call(session, Json::array({look_up_tool("look_up", schema)}), choice);
    body["max_tokens"] = 64;
    PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, session.chat(body));
    const std::string id = (*item)["id"];
    if (answer.ok() && answer.cut()) {
      accepted.add(id, "");
      continue;
    }
    judged += answer.ok() ? 1 : 0;
    accepted.add(id, call_difference(answer, "look_up", schema));
  }
  context.add(accepted.finish(fmt::format("{} answers ended and were judged", judged)));
  return {};
}

}  // namespace perigee::verify
