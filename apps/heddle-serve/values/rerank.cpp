#include "values/rerank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "heddle/core/error.h"

#include "api/bounds.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr auto kScoreFields = std::to_array<std::string_view>(
    {"text_1", "text_2", "data_1", "data_2", "queries", "documents"});
constexpr auto kRerankFields =
    std::to_array<std::string_view>({"query", "documents", "top_n", "return_documents"});

/// Pairs of texts, and how the model scores them.
struct Pairs {
  std::vector<std::string> first{}, second{};  // one first, or as many as of second
  bool has_head = false;  // a head of one label scores each pair, else its cosine similarity

  [[nodiscard]] size_t size() const { return second.size(); }
  [[nodiscard]] size_t first_of(size_t pair) const { return first.size() == 1 ? 0 : pair; }
};

/// A text, an object with `text`, or a list of these.
std::vector<std::string> read_texts_of(const json& value, const char* field, int64_t most) {
  std::vector<std::string> texts;
  const auto add = [&](const json& each) {
    const json* const inner = each.is_object() ? files::find_member(each, "text") : &each;
    if (inner == nullptr || !inner->is_string()) {
      throw bad_request(std::string(field) + " holds " + files::json_type(each) +
                            ", expected texts or objects with \"text\"",
                        field);
    }
    texts.emplace_back(files::text_of(*inner));
  };
  if (!value.is_array()) {
    add(value);
    return texts;
  }
  check_count(value.get_array().size(), most, field, "--max-prompts");
  for (const json& each : value.get_array()) add(each);
  if (texts.empty()) throw bad_request(std::string(field) + " is empty", field);
  return texts;
}

/// The field by the first of its names that is given.
std::vector<std::string> read_side(const RowReader& row, std::span<const char* const> names,
                                   int64_t most) {
  for (const char* name : names) {
    if (const json* value = row.find(name)) return read_texts_of(*value, name, most);
  }
  throw bad_request(std::string("field ") + names.front() + " is missing", names.front());
}

/// One prompt a pair for a head; else one for each text.
void make_prompts(Pairs& pairs, EngineThread& engine, Generation& generation) {
  Request named = generation.prompts.front();
  pairs.has_head = engine.labels(named).size() == 1;
  generation.prompts.clear();
  named.values.kind =
      pairs.has_head ? WantedValues::Kind::kClasses : WantedValues::Kind::kEmbedding;
  if (!pairs.has_head) named.values.normalize = true;
  const auto add = [&](std::string text) {
    named.text = std::move(text);
    generation.prompts.push_back(named);
  };
  if (pairs.has_head) {
    for (size_t i = 0; i < pairs.size(); ++i) add(pairs.first[pairs.first_of(i)] + pairs.second[i]);
    return;
  }
  for (const auto* side : {&pairs.first, &pairs.second}) {
    for (const std::string& text : *side) add(text);
  }
}

double dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](float x, float y) { return double{x} * double{y}; });
}

std::vector<double> scores_of(const Pairs& pairs, std::span<const Completion> rows) {
  std::vector<double> scores;
  for (size_t i = 0; i < pairs.size(); ++i) {
    scores.push_back(
        pairs.has_head ? double{rows[i].values.front()}
                       : dot(rows[pairs.first_of(i)].values, rows[pairs.first.size() + i].values));
  }
  return scores;
}

/// A call that scores the pairs; `write` makes the answer of them.
template <class Write>
ValuesCall scoring(Pairs given, const Request& request, Generation generation, const Write& write) {
  const auto pairs = std::make_shared<Pairs>(std::move(given));  // of both closures
  ValuesCall call{.generation = std::move(generation)};
  call.generation.prompts.push_back(request);  // whose adapters and share are resolved
  call.prepare = [pairs](EngineThread& engine, Generation& to) {
    make_prompts(*pairs, engine, to);
  };
  call.write = [pairs, write](std::span<const Completion> rows, const CallNames& names) -> json {
    return write(*pairs, scores_of(*pairs, rows), rows, names);
  };
  return call;
}

}  // namespace

ValuesCall read_score(const std::string& text, const app::ServeOptions& options) {
  auto [body, generation, request] = read_values_body(parse_body(text), kScoreFields, options);
  const RowReader row(*body, "request");
  constexpr const char* kFirst[] = {"text_1", "data_1", "queries"};
  constexpr const char* kSecond[] = {"text_2", "data_2", "documents"};
  Pairs pairs{.first = read_side(row, kFirst, options.limits.prompts),
              .second = read_side(row, kSecond, options.limits.prompts)};
  HEDDLE_CHECK(pairs.first.size() == 1 || pairs.first.size() == pairs.second.size(), "text_1 has ",
               pairs.first.size(), " texts and text_2 ", pairs.second.size(),
               ", expected one, or as many as text_2");
  return scoring(
      std::move(pairs), request, std::move(generation),
      [](const Pairs&, const std::vector<double>& scores, std::span<const Completion> rows,
         const CallNames& names) -> json {
        JsonObject answer = values_head("score-", names);
        JsonArray& data = answer["data"].emplace_array();
        for (const double score : scores) {
          data.push_back(JsonObject{{"index", data.size()}, {"object", "score"}, {"score", score}});
        }
        answer["usage"] = values_usage(rows);
        return answer;
      });
}

ValuesCall read_rerank(const std::string& text, const std::string& path,
                       const app::ServeOptions& options) {
  const bool is_cohere = path == "/v2/rerank";
  auto [body, generation, request] = read_values_body(parse_body(text), kRerankFields, options);
  const RowReader row(*body, "request");
  Pairs pairs{.first = {row.required_text("query")}};
  const json* const documents = row.array("documents", "texts");
  if (documents == nullptr) throw bad_request("field documents is missing", "documents");
  pairs.second = read_texts_of(*documents, "documents", options.limits.prompts);
  const auto count = std::ssize(pairs.second);
  const int64_t top = row.integer("top_n", 0, 0, int64_t{1} << 31);
  const size_t kept = top == 0 ? pairs.second.size() : static_cast<size_t>(std::min(top, count));
  const bool with_documents = row.flag("return_documents", !is_cohere);
  return scoring(std::move(pairs), request, std::move(generation),
                 [=](const Pairs& scored, const std::vector<double>& scores,
                     std::span<const Completion> rows, const CallNames& names) -> json {
                   std::vector<size_t> order(scores.size());
                   std::iota(order.begin(), order.end(), size_t{0});
                   std::ranges::stable_sort(order, std::greater<>(),
                                            [&](size_t i) { return scores[i]; });
                   order.resize(kept);
                   JsonObject answer{{"id", "rerank-" + names.id}};
                   if (!is_cohere) answer["model"] = names.model;
                   JsonArray& results = answer["results"].emplace_array();
                   for (const size_t i : order) {
                     JsonObject result{{"index", i}, {"relevance_score", scores[i]}};
                     if (with_documents)
                       result["document"] = JsonObject{{"text", scored.second[i]}};
                     results.push_back(std::move(result));
                   }
                   if (is_cohere) {
                     answer["meta"] = JsonObject{{"api_version", JsonObject{{"version", "2"}}},
                                                 {"billed_units", JsonObject{{"search_units", 1}}}};
                   } else {
                     answer["usage"] = values_usage(rows);
                   }
                   return answer;
                 });
}

}  // namespace heddle::serve
