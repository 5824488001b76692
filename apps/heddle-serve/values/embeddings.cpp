#include "values/embeddings.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "heddle/core/error.h"

#include "api/openai_request.h"
#include "values/lorax_inputs.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr auto kEmbeddingFields = std::to_array<std::string_view>(
    {"input", "encoding_format", "dimensions", "normalize", "pooling"});

WantedValues read_wanted(const RowReader& row) {
  WantedValues wanted{.kind = WantedValues::Kind::kEmbedding};
  wanted.dimensions = row.integer("dimensions", 0, 1, std::numeric_limits<int32_t>::max());
  if (row.find("normalize") != nullptr) wanted.normalize = row.flag("normalize", true);
  wanted.pooling = row.optional_text("pooling");
  return wanted;
}

/// Whether the numbers are wanted in base64.
bool read_encoding(const RowReader& row) {
  const json* const format = row.find("encoding_format");
  if (format == nullptr || files::is_text(*format, "float")) return false;
  if (files::is_text(*format, "base64")) return true;
  throw bad_request("encoding_format: only \"float\" and \"base64\" are supported",
                    "encoding_format");
}

}  // namespace

std::string base64_of(std::span<const float> values) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((values.size() * 4 + 2) / 3 * 4);
  uint32_t bits = 0, num_bits = 0;
  const auto add = [&](uint32_t byte) {
    bits = bits << 8 | byte;
    num_bits += 8;
    for (; num_bits >= 6; num_bits -= 6) text += kDigits[bits >> (num_bits - 6) & 63];
  };
  for (const float value : values) {
    const auto word = std::bit_cast<uint32_t>(value);
    for (uint32_t shift = 0; shift < 32; shift += 8) add(word >> shift & 255);
  }
  if (num_bits > 0) text += kDigits[bits << (6 - num_bits) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

ValuesCall read_embeddings(const std::string& text, const app::ServeOptions& options) {
  auto [body, generation, request] = read_values_body(parse_body(text), kEmbeddingFields, options);
  ValuesCall call{.generation = std::move(generation)};
  const RowReader row(*body, "request");
  request.values = read_wanted(row);
  const bool in_base64 = read_encoding(row);
  const json* const input = row.find("input");
  call.generation.prompts =
      prompts_of(input == nullptr ? json() : *input, "input", request, options.limits.prompts);
  call.write = [in_base64](std::span<const Completion> rows, const CallNames& names) -> json {
    JsonObject answer = values_head("embd-", names);
    JsonArray& data = answer["data"].emplace_array();
    for (const Completion& each : rows) {
      JsonObject entry{{"object", "embedding"}, {"index", data.size()}};
      entry["embedding"] =
          in_base64 ? json(base64_of(each.values)) : json(number_list(each.values));
      data.push_back(std::move(entry));
    }
    answer["usage"] = values_usage(rows);
    return answer;
  };
  return call;
}

ValuesCall read_lorax_embed(const std::string& text, const app::ServeOptions& options) {
  ValuesCall call;
  call.generation =
      read_lorax_inputs(parse_body(text), options, {.kind = WantedValues::Kind::kEmbedding});
  call.write = [](std::span<const Completion> rows, const CallNames&) -> json {
    return JsonObject{{"embeddings", number_list(rows.front().values)}};
  };
  return call;
}

}  // namespace heddle::serve
