#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/access_log.h"
#include "server/auth.h"
#include "server/generation.h"

namespace perigee::server {
namespace {

enum class Route : std::uint8_t {
  kUnknown,
  kLive,
  kReady,
  kMetrics,
  kModels,
  kModel,
  kChat,
  kCompletions,
  kResponses,
  kResponse,
  kCancelResponse,
  kMessages,
  kCountTokens,
  kTokenize,
  kDetokenize,
  kDebugCache,
};

struct RouteInfo {
  std::string_view path;  // "/" at the end: an id follows
  Route route;
  std::string_view methods;
  std::string_view after_id = "";
};

constexpr std::size_t kDebugObjects = 256;  // of the cache tree that /debug/cache shows

constexpr RouteInfo kRoutes[] = {
    {"/health/live", Route::kLive, "GET, HEAD"},
    {"/health", Route::kReady, "GET, HEAD"},
    {"/health/ready", Route::kReady, "GET, HEAD"},
    {"/v1/health", Route::kReady, "GET, HEAD"},
    {"/ping", Route::kReady, "GET, HEAD"},
    {"/metrics", Route::kMetrics, "GET, HEAD"},
    {"/v1/models", Route::kModels, "GET, HEAD"},
    {"/v1/models/", Route::kModel, "GET, HEAD"},
    {"/v1/chat/completions", Route::kChat, "POST"},
    {"/v1/completions", Route::kCompletions, "POST"},
    {"/v1/responses", Route::kResponses, "POST"},
    {"/v1/responses/", Route::kCancelResponse, "POST", "/cancel"},
    {"/v1/responses/", Route::kResponse, "GET, HEAD, DELETE"},
    {"/v1/messages", Route::kMessages, "POST"},
    {"/v1/messages/count_tokens", Route::kCountTokens, "POST"},
    {"/tokenize", Route::kTokenize, "POST"},
    {"/detokenize", Route::kDetokenize, "POST"},
    {"/debug/cache", Route::kDebugCache, "GET, HEAD"},
};

const RouteInfo* find_route(std::string_view path) {
  for (const RouteInfo& info : kRoutes) {
    const bool with_id = info.path.ends_with('/');
    if (with_id ? path.size() > info.path.size() + info.after_id.size() && path.starts_with(info.path) &&
                      path.ends_with(info.after_id)
                : path == info.path) {
      return &info;
    }
  }
  return nullptr;
}

bool allows(std::string_view methods, std::string_view method) {
  for (std::size_t at = 0; (at = methods.find(method, at)) != std::string_view::npos; at += method.size()) {
    const std::size_t end = at + method.size();
    if ((at == 0 || methods[at - 1] == ' ') && (end == methods.size() || methods[end] == ',')) return true;
  }
  return false;
}

bool generates(Route route) {
  return route == Route::kChat || route == Route::kCompletions || route == Route::kResponses ||
         route == Route::kMessages;
}

std::string_view path_id(const HttpRequest& request, const RouteInfo& info) {
  std::string_view id = std::string_view(request.path).substr(info.path.size());
  id.remove_suffix(info.after_id.size());
  return id;
}

HttpResponse json_response(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

class ModelServer final : public Server {
 public:
  explicit ModelServer(ServerOptions options)
      : options_(std::move(options)), keys_(options_.api_keys, options_.admin_keys), log_(options_.access_log) {
    api_config_.mode = options_.mode;
  }

  Status listen() {
    HttpServerOptions http = options_.http;
    http.admit = [this](HttpRequest& request) { return admit(request); };
    http.handler = [this](HttpRequest&& request) { return handle(std::move(request)); };
    http.error_response = [this](int status, std::string_view message, const HttpRequest& request) {
      api::ApiError error;
      error.status = status;
      error.message = std::string(message);
      if (status == 503) error.type = "unavailable_error";
      return finish(error_response(error, request), request);
    };
    http.on_finished = [this](const AccessRecord& record) { finished(record); };
    PERIGEE_ASSIGN_OR_RETURN(http_, HttpServer::start(std::move(http)));
    http_view_ = http_.get();
    return {};
  }

  std::uint16_t port() const override { return http_->port(); }

  void serve(ServedModel model) override {
    api_config_.models = {model.name};
    api_config_.models.insert(api_config_.models.end(), options_.aliases.begin(), options_.aliases.end());
    const EngineLimits limits = model.engine->limits();
    api_config_.context_tokens = limits.context_tokens;
    api_config_.vocab = limits.vocab;
    api_config_.default_max_tokens = std::min<std::int64_t>(api_config_.default_max_tokens, limits.context_tokens);
    api_config_.default_temperature = static_cast<float>(model.dialect->temperature);
    api_config_.default_top_p = static_cast<float>(model.dialect->top_p);
    api_config_.default_effort = std::string(model.dialect->default_effort);
    services_ = std::make_unique<GenerationServices>(std::move(model));
    created_ = std::time(nullptr);
    ready_.store(true, std::memory_order_release);
  }

  void drain(double seconds) override {
    draining_ = true;
    http_->drain(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
  }

 private:
  bool ready() const { return ready_.load(std::memory_order_acquire); }

  // Judges the header alone, so that a client without a key cannot make us read its body.
  HttpResponse admit(HttpRequest& request) {
    HttpResponse accepted;
    accepted.status = 0;
    const RouteInfo* info = find_route(request.path);
    if (request.method == "OPTIONS" && !options_.cors_origins.empty()) {
      HttpResponse preflight;
      preflight.status = 204;
      preflight.content_type.clear();
      preflight.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                           {"Access-Control-Allow-Headers", "*, Authorization, Content-Type, X-Api-Key"},
                           {"Access-Control-Max-Age", "600"}};
      return finish(std::move(preflight), request);
    }
    const Route route = info == nullptr ? Route::kUnknown : info->route;
    const bool open =
        route == Route::kLive || route == Route::kReady || (route == Route::kMetrics && options_.open_metrics);
    request.tenant = "default";
    if (!open && keys_.required() && !keys_.identify(request)) return refuse(api::invalid_api_key(), request);
    if (info == nullptr) return refuse(api::path_not_found(request.path), request);
    if (!allows(info->methods, request.method)) {
      api::ApiError error;
      error.status = 405;
      error.message = fmt::format("{} takes {} only", info->path, info->methods);
      HttpResponse response = error_response(error, request);
      response.headers.emplace_back("Allow", info->methods);
      return finish(std::move(response), request);
    }
    if (route == Route::kLive || route == Route::kReady || route == Route::kMetrics) return accepted;
    if (!ready()) return refuse(api::loading(), request);
    if (generates(route)) {
      if (draining_) {
        return refuse(
            {.status = 503, .type = "unavailable_error", .code = "", .param = "", .message = "the server is stopping"},
            request);
      }
      if (services_->active >= options_.max_requests) {
        return refuse(api::overloaded(fmt::format("{} requests are running or queued", options_.max_requests)),
                      request);
      }
    }
    return accepted;
  }

  HttpResponse handle(HttpRequest&& request) {
    if (options_.log_bodies && !request.body.empty()) log_.body(request);
    HttpResponse response;
    try {
      response = dispatch(request);
    } catch (const std::exception& error) {
      api::ApiError internal;
      internal.status = 500;
      internal.type = "internal_server_error";
      internal.message = fmt::format("internal error: {}", error.what());
      response = error_response(internal, request);
    }
    return finish(std::move(response), request);
  }

  HttpResponse refuse(const api::ApiError& error, const HttpRequest& request) const {
    return finish(error_response(error, request), request);
  }

  // Headers that every response has.
  HttpResponse finish(HttpResponse response, const HttpRequest& request) const {
    if (request.path.starts_with("/v1/messages")) response.headers.emplace_back("Request-Id", request.request_id);
    const std::string_view origin = request.header("origin");
    if (!origin.empty() && !options_.cors_origins.empty()) {
      for (const std::string& allowed : options_.cors_origins) {
        if (allowed != "*" && allowed != origin) continue;
        response.headers.emplace_back("Access-Control-Allow-Origin", allowed);
        response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, X-Perigee-Cache");
        break;
      }
      response.headers.emplace_back("Vary", "Origin");
    }
    return response;
  }

  HttpResponse dispatch(const HttpRequest& request) {
    const RouteInfo& info = *find_route(request.path);
    switch (info.route) {
      case Route::kLive:
        return json_response(R"({"status":"ok"})");
      case Route::kReady:
        return health();
      case Route::kMetrics:
        return metrics();
      case Route::kModels:
        return json_response(api::models_body(model_infos()));
      case Route::kModel:
        return model(request, path_id(request, info));
      case Route::kResponse:
        return stored_response(request, std::string(path_id(request, info)));
      case Route::kCancelResponse:
        return cancel_response(request, std::string(path_id(request, info)));
      case Route::kDebugCache:
        return debug_cache(request);
      default:
        break;
    }
    auto body = api::parse_body(request.body);
    if (!body.ok()) return error_response(body.error(), request);
    switch (info.route) {
      case Route::kChat:
        return chat(request, api::parse_chat_completions(*body, api_config_));
      case Route::kResponses:
        return chat(request, api::parse_responses(*body, api_config_, &services_->responses, request.tenant));
      case Route::kMessages:
        return chat(request, api::parse_messages(*body, api_config_));
      case Route::kCompletions: {
        auto parsed = api::parse_completions(*body, api_config_);
        if (!parsed.ok()) return error_response(parsed.error(), request);
        return generate_completion(*services_, request, std::move(*parsed));
      }
      case Route::kCountTokens:
        return count_tokens(request, api::parse_count_tokens(*body, api_config_));
      case Route::kTokenize:
        return tokenize(request, api::parse_tokenize(*body, api_config_));
      default: {
        auto parsed = api::parse_detokenize(*body, api_config_);
        if (!parsed.ok()) return error_response(parsed.error(), request);
        return json_response(
            api::detokenize_body(services_->model.tokenizer.decode(parsed->tokens, SpecialText::kKeep)));
      }
    }
  }

  HttpResponse chat(const HttpRequest& request, api::ApiResult<api::ChatRequest> parsed) {
    if (!parsed.ok()) return error_response(parsed.error(), request);
    return generate_chat(*services_, request, std::move(*parsed));
  }

  HttpResponse count_tokens(const HttpRequest& request, const api::ApiResult<api::ChatRequest>& parsed) {
    if (!parsed.ok()) return error_response(parsed.error(), request);
    const auto rendered = render_chat(*services_, *parsed, request.tenant);
    if (!rendered.ok()) return error_response(rendered.error(), request);
    return json_response(api::count_tokens_body(rendered->prompt_tokens));
  }

  HttpResponse tokenize(const HttpRequest& request, const api::ApiResult<api::TokenizeRequest>& parsed) {
    if (!parsed.ok()) return error_response(parsed.error(), request);
    const Tokenizer& tokenizer = services_->model.tokenizer;
    std::vector<TokenId> ids;
    if (parsed->chat) {
      const auto rendered = render_chat(*services_, *parsed->chat, request.tenant);
      if (!rendered.ok()) return error_response(rendered.error(), request);
      ids = rendered->ids;
    } else {
      ids = parsed->parse_special ? tokenizer.encode_with_specials(parsed->text) : tokenizer.encode(parsed->text);
    }
    std::vector<std::string> strings;
    if (parsed->with_strings) {
      for (const TokenId id : ids) strings.push_back(tokenizer.decode({&id, 1}, SpecialText::kKeep));
    }
    return json_response(api::tokenize_body(*parsed, ids, strings, api_config_.context_tokens));
  }

  HttpResponse health() const {
    if (ready() && !draining_) return json_response(R"({"status":"ok","model_loaded":true})");
    HttpResponse response = json_response(
        fmt::format(R"({{"status":"{}","model_loaded":{}}})", draining_ ? "stopping" : "loading", ready()));
    response.status = 503;
    return response;
  }

  // Requests may come while start() has not returned yet.
  HttpServerStats http_stats() const {
    const HttpServer* http = http_view_;
    return http == nullptr ? HttpServerStats() : http->stats();
  }

  HttpResponse metrics() const {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (ready()) {
      const EngineStats stats = services_->model.engine->stats();
      response.body = services_->metrics.text(&stats, http_stats());
    } else {
      response.body = Metrics("").text(nullptr, http_stats());
    }
    return response;
  }

  std::vector<api::ModelInfo> model_infos() const {
    std::vector<api::ModelInfo> infos;
    for (const std::string& name : api_config_.models) {
      infos.push_back({name, created_, api_config_.context_tokens, api_config_.vocab, services_->model.parameters});
    }
    return infos;
  }

  HttpResponse model(const HttpRequest& request, std::string_view name) const {
    for (const api::ModelInfo& info : model_infos()) {
      if (info.id == name) return json_response(api::model_body(info));
    }
    return error_response(api::model_not_found(name), request);
  }

  HttpResponse stored_response(const HttpRequest& request, const std::string& id) {
    if (request.method == "DELETE") {
      if (services_->responses.erase(request.tenant, id)) {
        return json_response(Json{{"id", id}, {"object", "response"}, {"deleted", true}}.dump());
      }
    } else if (const auto body = services_->responses.body(request.tenant, id)) {
      return json_response(*body);
    }
    return unknown_response(request, id);
  }

  // An answer that has ended already is given as it is, so that cancelling twice is no error.
  HttpResponse cancel_response(const HttpRequest& request, const std::string& id) {
    if (services_->running.cancel(request.tenant, id)) {
      return json_response(Json{
          {"id", id},
          {"object", "response"},
          {"status", "cancelled"},
          {"model", services_->model.name},
          {"output",
           Json::array()}}.dump());
    }
    if (const auto body = services_->responses.body(request.tenant, id)) return json_response(*body);
    return unknown_response(request, id);
  }

  static HttpResponse unknown_response(const HttpRequest& request, const std::string& id) {
    api::ApiError error;
    error.status = 404;
    error.param = "response_id";
    error.message = fmt::format("no response \"{}\" is running or stored", id);
    return error_response(error, request);
  }

  HttpResponse debug_cache(const HttpRequest& request) const {
    const EngineStats stats = services_->model.engine->stats();
    Json recent = Json::array();
    for (const CacheLog::Entry& entry : services_->cache_log.entries(request.tenant)) {
      recent.push_back({{"request_id", entry.request_id},
                        {"prompt_tokens", entry.report.prompt_tokens},
                        {"common_tokens", entry.report.common_tokens},
                        {"whole_blocks", entry.report.whole_blocks},
                        {"restored_tokens", entry.report.restored_tokens},
                        {"reason", entry.report.reason}});
    }
    // The tree shows what all tenants keep.
    const bool whole = request.admin || keys_.size() <= 1;
    const Json tree = whole ? services_->model.engine->debug_cache(kDebugObjects) : Json();
    const Json body = {{"kv_usage", stats.kv_usage},
                       {"prompt_tokens_computed", stats.prompt_tokens},
                       {"prompt_tokens_restored", stats.cached_tokens},
                       {"engine", stats.extra},
                       {"replayable_answers", services_->answers.size()},
                       {"recent", std::move(recent)},
                       {"tree", tree}};
    return json_response(body.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void finished(const AccessRecord& record) {
    log_.request(record);
    if (!ready()) return;
    const RouteInfo* info = find_route(record.path);
    services_->metrics.http_request(info == nullptr ? "other" : info->path, record.status, record.client_left);
  }

  const ServerOptions options_;
  const ApiKeys keys_;
  AccessLog log_;
  // Written once by serve(), read after ready_.
  api::ApiConfig api_config_;
  std::unique_ptr<GenerationServices> services_;
  std::int64_t created_ = 0;
  std::atomic<bool> ready_{false};
  std::atomic<bool> draining_{false};
  std::atomic<const HttpServer*> http_view_{nullptr};
  std::unique_ptr<HttpServer> http_;  // destroyed first: its threads use all of the above
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  auto server = std::make_unique<ModelServer>(std::move(options));
  if (Status status = server->listen(); !status.ok()) return status;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace perigee::server
