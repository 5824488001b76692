#include "engine/bindings/request_python.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "heddle/core/error.h"

namespace heddle::python {
namespace {

namespace nb = nanobind;
using namespace nanobind::literals;

void bind_fields(nb::class_<Request>& request) {
  const auto sampling = [&request](const char* name, float SamplingOptions::*field) {
    request.def_prop_rw(
        name, [field](const Request& r) { return r.sampling.*field; },
        [field](Request& r, double value) { r.sampling.*field = static_cast<float>(value); });
  };
  sampling("temperature", &SamplingOptions::temperature);
  sampling("top_p", &SamplingOptions::top_p);
  sampling("min_p", &SamplingOptions::min_p);
  sampling("repetition_penalty", &SamplingOptions::repetition_penalty);
  sampling("presence_penalty", &SamplingOptions::presence_penalty);
  sampling("frequency_penalty", &SamplingOptions::frequency_penalty);
  const auto json = [&request](const char* name, JsonValue Request::*field) {
    request.def_prop_rw(
        name, [field](const Request& r) { return (r.*field).text(); },
        [field](Request& r, std::string text) { r.*field = std::move(text); });
  };
  json("messages_json", &Request::messages_json);
  json("tools_json", &Request::tools_json);
  json("documents_json", &Request::documents_json);
  json("template_kwargs_json", &Request::template_kwargs_json);
  using Messages = std::vector<std::pair<std::string, std::string>>;
  using Biases = std::vector<std::pair<int64_t, double>>;
  request.def_rw("text", &Request::text, nb::arg().none())
      .def_prop_rw(
          "messages",
          [](const Request& r) {
            Messages messages;
            for (const auto& [role, content] : r.messages) messages.emplace_back(role, content);
            return messages;
          },
          [](Request& r, const Messages& messages) {
            r.messages.clear();
            for (const auto& [role, content] : messages) r.messages.push_back({role, content});
          })
      .def_rw("add_generation_prompt", &Request::add_generation_prompt)
      .def_rw("adapter", &Request::adapter)
      .def_rw("max_tokens", &Request::max_tokens)
      .def_prop_rw(
          "top_k", [](const Request& r) { return r.sampling.top_k; },
          [](Request& r, int64_t value) { r.sampling.top_k = narrowed("top_k", value); })
      .def_prop_rw(
          "seed", [](const Request& r) { return r.sampling.seed; },
          [](Request& r, int64_t value) { r.sampling.seed = value; })
      .def_rw("stop", &Request::stop)
      .def_rw("ignore_end", &Request::ignore_end)
      .def_prop_rw(
          "logit_bias",
          [](const Request& r) {
            Biases biases;
            for (const auto& [token, bias] : r.logit_bias) biases.emplace_back(token, bias);
            return biases;
          },
          [](Request& r, const Biases& biases) {
            r.logit_bias.clear();
            for (const auto& [token, bias] : biases) {
              r.logit_bias.push_back({narrowed("a token id", token), static_cast<float>(bias)});
            }
          })
      .def_rw("min_tokens", &Request::min_tokens)
      .def_rw("top_logprobs", &Request::top_logprobs)
      .def_rw("prompt_logprobs", &Request::prompt_logprobs)
      .def_rw("bad_words", &Request::bad_words)
      .def_rw("include_stop", &Request::include_stop)
      .def_rw("skip_special_tokens", &Request::skip_special_tokens)
      .def_rw("add_special_tokens", &Request::add_special_tokens, nb::arg().none())
      .def_rw("truncate_prompt_tokens", &Request::truncate_prompt_tokens)
      .def_rw("cache_salt", &Request::cache_salt)
      .def_rw("tenant", &Request::tenant)
      .def_rw("tenant_weight", &Request::tenant_weight)
      .def_rw("priority", &Request::priority)
      .def_rw("speculation", &Request::speculation)
      .def_rw("prediction", &Request::prediction)
      .def_rw("continue_final_message", &Request::continue_final_message);
  const auto tokens = [&request](const char* name, auto Request::*field) {
    request.def_prop_rw(
        name, [field](const Request& r) { return r.*field; },
        [field](Request& r, const std::vector<int64_t>& ids) {
          std::vector<int32_t> narrow;
          for (const int64_t id : ids) narrow.push_back(narrowed("a token id", id));
          r.*field = std::move(narrow);
        });
  };
  tokens("token_ids", &Request::token_ids);
  tokens("stop_token_ids", &Request::stop_token_ids);
  tokens("allowed_token_ids", &Request::allowed_token_ids);
}

/// Kind, source and choices.
using FormatTuple = std::tuple<std::string, std::string, std::vector<std::string>>;

constexpr std::pair<const char*, AnswerFormat::Kind> kFormatKinds[] = {
    {"text", AnswerFormat::Kind::kText},
    {"json", AnswerFormat::Kind::kJson},
    {"json_schema", AnswerFormat::Kind::kJsonSchema},
    {"regex", AnswerFormat::Kind::kRegex},
    {"choice", AnswerFormat::Kind::kChoice},
    {"grammar", AnswerFormat::Kind::kGrammar},
    {"lark", AnswerFormat::Kind::kLark},
    {"structural_tag", AnswerFormat::Kind::kStructuralTag}};

void bind_format(nb::class_<Request>& request) {
  request.def_prop_rw(
      "format",
      [](const Request& r) {
        const auto* const kind =
            std::ranges::find(kFormatKinds, r.format.kind, [](const auto& k) { return k.second; });
        return FormatTuple{kind->first, r.format.source, r.format.choices};
      },
      [](Request& r, const FormatTuple& given) {
        const auto& [word, source, choices] = given;
        const auto* const kind = std::ranges::find(kFormatKinds, std::string_view(word),
                                                   [](const auto& k) { return k.first; });
        HEDDLE_CHECK(kind != std::end(kFormatKinds), "format is of kind ", word);
        r.format = {.kind = kind->second, .source = source, .choices = choices};
      });
}

constexpr std::pair<const char*, WantedValues::Kind> kValueKinds[] = {
    {"none", WantedValues::Kind::kNone},
    {"embedding", WantedValues::Kind::kEmbedding},
    {"classes", WantedValues::Kind::kClasses},
    {"token_scores", WantedValues::Kind::kTokenScores}};

void bind_values(nb::class_<Request>& request) {
  request.def(
      "want",
      [](Request& r, const std::string& kind, std::string pooling, std::optional<bool> normalize,
         int64_t dimensions, bool activates, const std::vector<int64_t>& token_ids) {
        const auto* const found = std::ranges::find(kValueKinds, std::string_view(kind),
                                                    [](const auto& k) { return k.first; });
        HEDDLE_CHECK(found != std::end(kValueKinds), "values are of kind ", kind);
        r.values = {.kind = found->second,
                    .pooling = std::move(pooling),
                    .normalize = normalize,
                    .dimensions = dimensions,
                    .activates = activates};
        for (const int64_t id : token_ids) {
          r.values.token_ids.push_back(narrowed("a token id", id));
        }
      },
      "kind"_a, "pooling"_a = "", "normalize"_a = nb::none(), "dimensions"_a = 0,
      "activates"_a = true, "token_ids"_a = std::vector<int64_t>(),
      "Numbers in place of an answer.");
}

/// Method, density, majority sign and seed.
using MergeTuple = std::tuple<std::string, double, std::string, int64_t>;

/// The list of adapters and how it acts, which are given once the request is made.
void bind_adapters(nb::class_<Request>& request) {
  request.def_prop_rw(
      "adapters",
      [](const Request& r) {
        AdapterPairs list;
        for (const auto& [name, scale] : r.adapters) list.emplace_back(name, scale);
        return list;
      },
      [](Request& r, const AdapterPairs& list) { r.adapters = list_of(list); });
  request.def_prop_rw(
      "merge",
      [](const Request& r) {
        return MergeTuple{name(r.merge.method), r.merge.density, name(r.merge.majority_sign),
                          r.merge.seed};
      },
      [](Request& r, const MergeTuple& given) {
        const auto& [method, density, sign, seed] = given;
        r.merge = {.method = merge_method(method),
                   .density = density,
                   .majority_sign = majority_sign_method(sign),
                   .seed = seed};
      });
}

}  // namespace

int32_t narrowed(const char* name, int64_t value) {
  using Limits = std::numeric_limits<int32_t>;
  HEDDLE_CHECK(value >= Limits::min() && value <= Limits::max(), name, " is ", value,
               ", expected at most ", Limits::max());
  return static_cast<int32_t>(value);
}

AdapterList list_of(const AdapterPairs& given) {
  AdapterList list;
  for (const auto& [name, scale] : given) list.push_back({name, static_cast<float>(scale)});
  return list;
}

/// heddle._core.Request.
void bind_request(nb::module_& m) {
  nb::class_<Request> request(m, "Request");
  request.def(nb::init<>());
  bind_fields(request);
  bind_format(request);
  bind_values(request);
  bind_adapters(request);
}

}  // namespace heddle::python
