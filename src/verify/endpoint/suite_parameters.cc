// Which requests must be refused, with which status and field, and which must not.
#include <map>
#include <nlohmann/json.hpp>

#include "verify/endpoint/case_body.h"
#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

constexpr std::int64_t kUnknownContext = 131072;

std::string body_of(const Json& item, const Session& session) {
  return case_body(item.contains("raw_body") ? item["raw_body"].get<std::string>() : item["body"].dump(),
                   session.model(), session.context_tokens() > 0 ? session.context_tokens() : kUnknownContext);
}

std::string first_param(const std::string& param) {
  return param.substr(0, param.find_first_of(".["));
}

// "" if the reply is what the case expects; `wording` counts right statuses with another field or code.
std::string judge_reply(const Json& expect, const HttpReply& reply, std::string& wording) {
  const int status = expect.at("status").get<int>();
  if (status == 200) {
    return reply.status == 200 ? "" : fmt::format("was refused with {}: {}", reply.status, shown_text(reply.body));
  }
  if (reply.status != status) {
    return reply.status == 200
               ? "was not refused"
               : fmt::format("expected status {}, found {}: {}", status, reply.status, shown_text(reply.body));
  }
  const auto json = parse_json(reply.body);
  const Json error = json.ok() && json->is_object() ? json->value("error", Json::object()) : Json::object();
  const std::string wanted = expect.value("param", std::string());
  if (wanted.empty()) return "";
  const auto param = error.is_object() ? error.find("param") : error.end();
  const std::string found = error.is_object() && param != error.end() && param->is_string()
                                ? first_param(param->get<std::string>())
                                : std::string();
  if (found != wanted) wording = fmt::format("param is {}, expected {}", shown_text(found), shown_text(wanted));
  return "";
}

}  // namespace

Status run_parameters(const SuiteContext& context) {
  PERIGEE_ASSIGN_OR_RETURN(const Json document, vector_document(*context.options, "validate.json"));
  struct Path {
    Cases refused, accepted, named;
    bool offered = true;
  };
  std::map<std::string, Path> paths;
  for (const Json& item : document["cases"]) {
    const std::string mode = item.value("mode", "");
    const std::string name = item.value("path", "");
    const bool fits = mode == context.options->api_mode || (context.options->api_mode == "lenient" && mode == "normal");
    if (!fits || !item.contains("expect") || (!item.contains("body") && !item.contains("raw_body"))) continue;
    // A case about a path that no server has stays with the chat API.
    const std::string group = name == "/v1/nope" ? "/v1/chat/completions" : name;
    auto found = paths.find(group);
    if (found == paths.end()) {
      found = paths
                  .emplace(group, Path{Cases("parameters", group + " refuses"), Cases("parameters", group + " accepts"),
                                       Cases("parameters", group + " names the field")})
                  .first;
      if (name != "/v1/chat/completions" && name != "/v1/nope") {
        // An empty body is a mistake everywhere; a server without the path says 404.
        PERIGEE_ASSIGN_OR_RETURN(const HttpReply probe, context.session->post_text(name, "{}"));
        found->second.offered = probe.status != 404 && probe.status != 405 && probe.status != 501;
      }
    }
    Path& path = found->second;
    if (!path.offered) continue;
    const std::string id = item["id"];
    PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, context.session->post_text(name, body_of(item, *context.session)));
    std::string wording;
    std::string difference = judge_reply(item["expect"], reply, wording);
    // Cases whose note says that a server may accept the request.
    const bool may = item.contains("note") && reply.status == 200 && id != "http.prompt_too_long";
    if (may) difference.clear();
    const bool accepts = item["expect"].value("status", 0) == 200;
    (accepts ? path.accepted : path.refused).add(id, difference);
    if (!accepts && !may && difference.empty() && item["expect"].contains("param")) path.named.add(id, wording);
  }
  for (auto& [name, path] : paths) {
    if (!path.offered) {
      context.add(path.refused.not_offered("no " + name));
      continue;
    }
    for (Cases* cases : {&path.refused, &path.accepted, &path.named}) {
      if (cases->total() > 0) context.add(cases->finish());
    }
  }
  return {};
}

}  // namespace perigee::verify
