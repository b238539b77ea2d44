#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/parser.h"
#include "text/python_json.h"
#include "text/vectors.h"

namespace perigee {
namespace {

constexpr std::size_t kGroupings[] = {1, 2, 3, 5, 7, 11, 20, 64, SIZE_MAX};

// What a client of the stream has after some events.
struct Stream {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  bool malformed = false;  // an empty delta, a wrong index, or something after the end
  bool finished = false;

  void add(const AnswerEvent& event) {
    using Kind = AnswerEvent::Kind;
    malformed = malformed || finished;
    const bool text =
        event.kind == Kind::kReasoning || event.kind == Kind::kContent || event.kind == Kind::kCallArguments;
    malformed = malformed || (text && event.text.empty());
    if (event.kind == Kind::kReasoning) reasoning += event.text;
    if (event.kind == Kind::kContent) content += event.text;
    if (event.kind == Kind::kCallBegin) {
      malformed = malformed || event.call != static_cast<std::int32_t>(calls.size()) || event.id.empty();
      calls.push_back({event.id, event.text, ""});
    }
    if (event.kind == Kind::kCallArguments || event.kind == Kind::kCallEnd) {
      malformed = malformed || event.call + 1 != static_cast<std::int32_t>(calls.size());
      if (!calls.empty()) calls.back().arguments += event.text;
    }
    finished = event.kind == Kind::kFinish;
  }
};

std::int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string_view finish_name(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::kStop:
      return "stop";
    case AnswerFinish::kLength:
      return "length";
    case AnswerFinish::kToolCalls:
      return "tool_calls";
    default:
      return "";
  }
}

Json to_json(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}

bool same_arguments(const Json& item, const std::string& got, const std::string& want) {
  if (item.value("arguments_compare", "") != "parsed") return got == want;
  const auto a = parse_python_json(got);
  const auto b = parse_python_json(want);
  return a.ok() && b.ok() && *a && *b && dump_sorted_json(**a) == dump_sorted_json(**b);
}

std::string compare_calls(const Json& item, const std::vector<ToolCall>& got, const Json& want) {
  if (got.size() != want.size()) return fmt::format("expected {} calls, found {}", want.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (want[i].at("name") != got[i].name) return fmt::format("call {}: name {}", i, got[i].name);
    if (want[i].contains("id") && want[i]["id"] != got[i].id) return fmt::format("call {}: id {}", i, got[i].id);
    if (!same_arguments(item, got[i].arguments, want[i].at("arguments").get<std::string>())) {
      return fmt::format("call {}: arguments {}", i, got[i].arguments);
    }
  }
  return "";
}

std::string compare_answer(const Json& item, const Answer& answer, const Stream& stream) {
  const Json& want = item.at("expect");
  const bool alternative = item.contains("reasoning_alternative");
  if (to_json(answer.reasoning) != want.at("reasoning") &&
      !(alternative && item["reasoning_alternative"] == answer.reasoning.value_or(""))) {
    return "reasoning " + to_json(answer.reasoning).dump();
  }
  if (to_json(answer.content) != want.at("content")) return "content " + to_json(answer.content).dump();
  if (want.at("finish_reason") != finish_name(answer.finish)) {
    return fmt::format("finish_reason {}", finish_name(answer.finish));
  }
  if (auto calls = compare_calls(item, answer.tool_calls, want.at("tool_calls")); !calls.empty()) return calls;
  if (stream.malformed || !stream.finished) return "malformed stream";
  if (stream.reasoning != answer.reasoning.value_or("") &&
      !(alternative && item["reasoning_alternative"] == stream.reasoning)) {
    return "the reasoning deltas differ from the message";
  }
  if (stream.content != answer.content.value_or("")) return "the content deltas differ from the message";
  // A call that was cut may have been started in the stream.
  if (stream.calls.size() < answer.tool_calls.size()) return "the stream lacks a call";
  for (std::size_t i = 0; i < answer.tool_calls.size(); ++i) {
    if (stream.calls[i].arguments != answer.tool_calls[i].arguments) return "the argument deltas differ";
  }
  return "";
}

// progress[k]: code points of reasoning and content and calls that a stream has delivered after k + 1 ids.
std::string compare_progress(const Json& progress, std::size_t ids, const Stream& stream) {
  const Json& want = progress.at(ids - 1);
  if (code_points(stream.reasoning) < want.at(0) || code_points(stream.content) < want.at(1) ||
      stream.calls.size() < want.at(2)) {
    return fmt::format("after {} ids less was delivered than {}", ids, want.dump());
  }
  return "";
}

ParserOptions options_of(const Json& item, const Json& tools) {
  ParserOptions options;
  options.start = item.at("start") == "think" ? Channel::kThink : Channel::kResponse;
  options.drop_calls = item.value("tool_choice", "") == "none";
  options.tools = &tools;
  if (item.contains("stop")) options.stop = item["stop"].get<std::vector<std::string>>();
  options.include_stop = item.value("include_stop_str_in_output", false);
  return options;
}

// The vectors name parameters by tool; the parser reads the array of a request.
Json tools_of(const Json& item) {
  Json tools = Json::array();
  if (!item.contains("tools")) return tools;
  for (const auto& [name, parameters] : item["tools"].items()) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}});
  }
  return tools;
}

std::string run_grouping(const Dialect& dialect, const Json& item, const std::vector<TokenId>& ids, std::size_t group) {
  const Json tools = tools_of(item);
  const auto parser = make_answer_parser(dialect, Tokenizer::embedded(dialect.specials), options_of(item, tools));
  AnswerFold fold;
  Stream stream;
  std::vector<AnswerEvent> events;
  const auto drain = [&] {
    for (const AnswerEvent& event : events) {
      stream.add(event);
      fold.add(event);
    }
    events.clear();
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    parser->push(ids[i], events);
    const bool last = i + 1 == ids.size();
    if (!last && (i + 1) % group != 0) continue;
    drain();
    if (!item.contains("progress")) continue;
    if (auto late = compare_progress(item["progress"], i + 1, stream); !late.empty()) return late;
  }
  parser->finish(item.at("finish") == "length", events);
  drain();
  return compare_answer(item, fold.take(), stream);
}

std::string parse_case(const Dialect& dialect, const Json& item) {
  const auto ids = item.at("ids").get<std::vector<TokenId>>();
  for (const std::size_t group : kGroupings) {
    const std::string difference = run_grouping(dialect, item, ids, group);
    if (!difference.empty()) return fmt::format("in steps of {}: {}", group, difference);
  }
  return "";
}

std::string run_text(const Json& item, const std::vector<std::string>& chunks) {
  const Json tools = tools_of(item);
  TextAnswerParser parser(options_of(item, tools));
  AnswerFold fold;
  Stream stream;
  std::vector<AnswerEvent> events;
  const auto drain = [&] {
    for (const AnswerEvent& event : events) {
      stream.add(event);
      fold.add(event);
    }
    events.clear();
  };
  for (const std::string& chunk : chunks) {
    parser.push(chunk, events);
    drain();
    for (const Json& never : item.value("never_emit", Json::array())) {
      const auto text = never.get<std::string>();
      if ((stream.reasoning + stream.content).find(text) != std::string::npos) return "emitted " + text;
    }
  }
  parser.finish(item.at("finish") == "length", events);
  drain();
  return compare_answer(item, fold.take(), stream);
}

std::string text_mode_case(const Json& item) {
  const auto chunks = item.at("chunks").get<std::vector<std::string>>();
  if (auto difference = run_text(item, chunks); !difference.empty()) return difference;
  std::string all;
  for (const std::string& chunk : chunks) all += chunk;
  for (std::size_t size = 1; size <= all.size(); ++size) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < all.size(); at += size) pieces.push_back(all.substr(at, size));
    if (auto difference = run_text(item, pieces); !difference.empty()) {
      return fmt::format("in pieces of {}: {}", size, difference);
    }
  }
  return "";
}

}  // namespace

Result<VectorReport> run_parse_vectors(const Json& document) {
  PERIGEE_ASSIGN_OR_RETURN(auto report, run_vector_cases(document, "cases", {}, [](const Json& item) {
                             return parse_case(kDialectK3, item);
                           }));
  return run_vector_cases(document, "text_mode", std::move(report), text_mode_case);
}

Result<VectorReport> run_parse_k2_vectors(const Json& document) {
  return run_vector_cases(document, "cases", {}, [](const Json& item) { return parse_case(kDialectK2Thinking, item); });
}

}  // namespace perigee
