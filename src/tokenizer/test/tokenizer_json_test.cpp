#include "tokenizer/tokenizer_json.h"

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "readers/clean_message.h"
#include "readers/linear_time.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const json& families() {
  static const json file =
      json::parse(std::ifstream(HEDDLE_SOURCE_DIR "/tests/fixtures/tokenizer/families.json"));
  return file;
}

Tokenizer read(const json& value) { return read_tokenizer_json(value.dump(), "tokenizer.json"); }

std::string refusal(const json& value) {
  return testing::message_of([&] { (void)read(value); });
}

/// The characters a, b and c, and "ab"; no other component.
json small_file() {
  return json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null,
      "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}})");
}

json with(const char* component, const std::string& value) {
  json file = small_file();
  file[component] = json::parse(value);
  return file;
}

json added_token(const std::string& content, const std::string& changes = "{}") {
  json token = {{"id", 0},         {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(json::parse(changes));
  return token;
}

std::string text_of(const Tokenizer& tokenizer, const Ids& ids) {
  return replace_invalid_utf8(tokenizer.decode(ids));
}

TEST(TokenizerJson, EncodesAsTheTokenizersPackageDoes) {
  const auto texts = families().at("texts").get<std::vector<std::string>>();
  for (const auto& [name, family] : families().items()) {
    if (name == "texts") continue;
    const Tokenizer tokenizer = read(family.at("tokenizer"));
    const auto ids = family.at("ids").get<std::vector<Ids>>();
    ASSERT_EQ(ids.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer.encode(texts[i], ControlTokens::kParse), ids[i])
          << name << ", text " << i << ": " << json(texts[i]);
      EXPECT_EQ(text_of(tokenizer, ids[i]), family.at("decoded")[i].get<std::string>())
          << name << ", text " << i << ": " << json(texts[i]);
    }
  }
}

TEST(TokenizerJson, OtherFilesMayAddTokens) {
  json file = small_file();
  file["added_tokens"] = json::array({added_token("<s>")});
  const std::vector<ExtraToken> extra = {
      {.content = "<s>", .special = true, .lstrip = true, .replaces = true},
      {.content = "<new>", .special = true, .normalized = false},
      {.content = "ab", .special = true, .normalized = false, .rstrip = true},
      {.content = "<new>", .special = false},  // is there
      {.content = ""}};
  const Tokenizer tokenizer = read_tokenizer_json(file.dump(), "tokenizer.json", extra);
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.find("<s>"), 4);
  EXPECT_EQ(tokenizer.find("<new>"), 5);
  EXPECT_TRUE(tokenizer.is_control(4));
  EXPECT_TRUE(tokenizer.is_control(5));
  EXPECT_EQ(tokenizer.encode("a <s>c<new>ab  b", ControlTokens::kParse), (Ids{0, 4, 2, 5, 3, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{0, 5}), "a<new>");
}

/// But for models that hold special tokens as pieces, which the package takes from plain text, too.
TEST(TokenizerJson, LeavesSpecialTokensInPlainText) {
  const auto texts = families().at("texts").get<std::vector<std::string>>();
  for (const auto& [name, family] : families().items()) {
    if (name == "texts") continue;
    const Tokenizer tokenizer = read(family.at("tokenizer"));
    const auto want = family.at("ids_plain").get<std::vector<Ids>>();
    for (size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = tokenizer.encode(texts[i], ControlTokens::kPlain);
      if (!name.starts_with("unigram")) {
        EXPECT_EQ(ids, want[i]) << name << ": " << json(texts[i]);
      }
      for (const int32_t id : ids) {
        EXPECT_TRUE(!tokenizer.is_control(id) || tokenizer.token_bytes(id) == "<unk>")
            << name << ": " << json(texts[i]);
      }
    }
  }
}

TEST(TokenizerJson, StreamsWhatThePackageDecodesAtOnce) {
  for (const auto& [name, family] : families().items()) {
    if (name == "texts") continue;
    const Tokenizer tokenizer = read(family.at("tokenizer"));
    const auto some = family.at("some_ids").get<std::vector<Ids>>();
    for (size_t i = 0; i < some.size(); ++i) {
      DecodeState state;
      Utf8Stream utf8;
      std::string text, bytes;
      for (const int32_t id : some[i]) {
        bytes.clear();
        tokenizer.decode_next(id, state, bytes);
        text += utf8.push(bytes);
      }
      bytes.clear();
      tokenizer.decode_end(state, bytes);
      text += utf8.push(bytes);
      text += utf8.finish();
      EXPECT_EQ(text, family.at("some_decoded")[i].get<std::string>())
          << name << ": " << json(some[i]);
      EXPECT_EQ(text_of(tokenizer, some[i]), text) << name;
    }
  }
}

TEST(TokenizerJson, TellsWhatPlainPromptsBeginAndEndWith) {
  for (const auto& [name, family] : families().items()) {
    if (name == "texts") continue;
    const Tokenizer tokenizer = read(family.at("tokenizer"));
    Ids ids = tokenizer.encode("a", ControlTokens::kParse);
    ids.insert(ids.begin(), tokenizer.begin_tokens().begin(), tokenizer.begin_tokens().end());
    ids.insert(ids.end(), tokenizer.end_tokens().begin(), tokenizer.end_tokens().end());
    EXPECT_EQ(ids, family.at("with_special").get<Ids>()) << name;
  }
}

TEST(TokenizerJson, KnowsItsTokens) {
  json file = small_file();
  file["model"]["vocab"]["c"] = 7;  // ids 2 and 4 to 6 are holes
  file["added_tokens"] = {added_token("<end>", R"({"special": true})"), added_token("b")};
  const Tokenizer tokenizer = read(file);
  EXPECT_EQ(tokenizer.vocab_size(), 8);
  EXPECT_EQ(tokenizer.find("<end>"), 4);  // after the four tokens of the model
  EXPECT_TRUE(tokenizer.is_control(4));
  EXPECT_FALSE(tokenizer.is_control(1));
  EXPECT_EQ(tokenizer.find("ab"), 3);
  EXPECT_EQ(tokenizer.find("x"), kNoToken);
  EXPECT_EQ(tokenizer.token_bytes(7), "c");
  EXPECT_EQ(tokenizer.token_bytes(5), "");
  EXPECT_EQ(tokenizer.decode(Ids{0, 5, 7}), "ac");
  EXPECT_EQ(tokenizer.bos(), kNoToken);
  EXPECT_TRUE(tokenizer.begin_tokens().empty());
  EXPECT_THROW((void)tokenizer.token_bytes(8), Error);
  EXPECT_EQ(tokenizer.encode("ab<end>cb", ControlTokens::kParse), (Ids{0, 1, 4, 7, 1}));
  EXPECT_EQ(tokenizer.encode("ac<end>", ControlTokens::kPlain), (Ids{0, 7}));
}

TEST(TokenizerJson, TakesMergesAsTextOrAsPairs) {
  json file = small_file();
  EXPECT_EQ(read(file).encode("abc", ControlTokens::kParse), (Ids{3, 2}));
  file["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_EQ(read(file).encode("abc", ControlTokens::kParse), (Ids{3, 2}));
}

/// As the package does, which prepends to no text that has become empty.
TEST(TokenizerJson, PrependsToWhatOtherStepsLeave) {
  json file = with("normalizer", R"({"type": "Sequence", "normalizers": [
      {"type": "Strip", "strip_left": true, "strip_right": true},
      {"type": "Prepend", "prepend": "_"}]})");
  file["model"]["vocab"]["_"] = 4;
  const Tokenizer tokenizer = read(file);
  EXPECT_EQ(tokenizer.encode("", ControlTokens::kParse), Ids{});
  EXPECT_EQ(tokenizer.encode(" \n ", ControlTokens::kParse), Ids{});
  EXPECT_EQ(tokenizer.encode("  a ", ControlTokens::kParse), (Ids{4, 0}));
  EXPECT_EQ(tokenizer.encode(" ab", ControlTokens::kParse), (Ids{4, 3}));
}

/// add_prefix_space alone is how files said it before there was a prepend_scheme.
TEST(TokenizerJson, MetaspacePrependsAsItsFileSays) {
  const std::pair<const char*, std::vector<Ids>> cases[] = {
      {R"("add_prefix_space": false)", {{0}, {4, 0}, {0, 4, 1}}},
      {R"("add_prefix_space": true)", {{4, 0}, {4, 0}, {4, 0, 4, 1}}},
      {R"("prepend_scheme": "never")", {{0}, {4, 0}, {0, 4, 1}}},
      {R"("prepend_scheme": "first")", {{4, 0}, {4, 0}, {4, 0, 4, 1}}}};
  for (const auto& [setting, ids] : cases) {
    json file = with("pre_tokenizer",
                     std::string(R"({"type": "Metaspace", "replacement": "_", )") + setting + "}");
    file["model"]["vocab"]["_"] = 4;
    const Tokenizer tokenizer = read(file);
    const char* const texts[] = {"a", " a", "a b"};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(tokenizer.encode(texts[i], ControlTokens::kParse), ids[i]) << setting << i;
    }
    EXPECT_EQ(tokenizer.encode("", ControlTokens::kParse), Ids{}) << setting;
  }
}

TEST(TokenizerJson, RefusesByNameWhatItDoesNotUnderstand) {
  EXPECT_EQ(refusal(small_file()), "no error");
  const std::string file = "tokenizer.json: ";
  EXPECT_EQ(refusal(with("normalizer", R"({"type": "Nmt"})")),
            file + "normalizer of type 'Nmt' is not supported");
  EXPECT_EQ(refusal(with("normalizer", R"({"type": "Sequence", "normalizers": [
                {"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": ""}]})")),
            file + "normalizer.normalizers[1] of type 'Precompiled' is not supported");
  EXPECT_EQ(refusal(with("pre_tokenizer", R"({"type": "UnicodeScripts"})")),
            file + "pre_tokenizer of type 'UnicodeScripts' is not supported");
  EXPECT_EQ(refusal(with("decoder", R"({"type": "CTC"})")),
            file + "decoder of type 'CTC' is not supported");
  EXPECT_EQ(refusal(with("post_processor", R"({"type": "BertProcessing"})")),
            file + "post_processor of type 'BertProcessing' is not supported");
  EXPECT_EQ(refusal(with("model", R"({"type": "WordPiece"})")),
            file + "model of type 'WordPiece' is not supported");
  EXPECT_EQ(refusal(with("novelty", "1")),
            "tokenizer.json has the member 'novelty', which is not supported");
  EXPECT_EQ(refusal(with("version", R"("2.0")")), file + "version is '2.0', supported: 1.0");
  EXPECT_EQ(refusal(with("normalizer", R"({"type": "NFC", "strength": 3})")),
            file + "normalizer has the member 'strength', which is not supported");
  for (const auto& [field, value, told] : {std::tuple("dropout", json(0.1), "0.1"),
                                           {"end_of_word_suffix", json("</w>"), "'</w>'"},
                                           {"continuing_subword_prefix", json("##"), "'##'"}}) {
    json changed = small_file();
    changed["model"][field] = value;
    EXPECT_EQ(refusal(changed), file + "model." + field + " is " + told + ", supported: null");
  }
}

TEST(TokenizerJson, RefusesDecodersThatCannotTellTextAsItArrives) {
  const auto decoder = [](const char* parts) {
    return refusal(
        with("decoder", std::string(R"({"type": "Sequence", "decoders": [)") + parts + "]}"));
  };
  const std::string place = "tokenizer.json: decoder.decoders[1] of type ";
  EXPECT_EQ(
      decoder(
          R"({"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""})"),
      place + "'Replace' follows Fuse, after which one Strip is supported");
  EXPECT_EQ(decoder(R"({"type": "Fuse"}, {"type": "ByteFallback"})"),
            place + "ByteFallback follows Fuse or another ByteFallback");
  EXPECT_EQ(decoder(R"({"type": "Fuse"}, {"type": "ByteLevel"})"),
            place + "ByteLevel follows other decoders");
  EXPECT_EQ(decoder(R"({"type": "ByteLevel"}, {"type": "ByteFallback"})"),
            place + "'ByteFallback' follows ByteLevel, which is not supported");
}

TEST(TokenizerJson, RefusesAFileThatContradictsItself) {
  const std::string file = "tokenizer.json: ";
  const auto changed = [](auto change) {
    json value = small_file();
    change(value);
    return refusal(value);
  };
  EXPECT_EQ(changed([](json& v) { v["model"]["vocab"]["d"] = 0; }),
            file + "model.vocab: tokens 'a' and 'd' have the same id 0");
  EXPECT_EQ(changed([](json& v) { v["model"]["vocab"]["d"] = -1; }),
            file + "model.vocab: token 'd' has the id -1, expected 0 to 1073741823");
  EXPECT_EQ(changed([](json& v) { v["model"]["vocab"]["d"] = 1 << 20; }),
            file +
                "model.vocab has 5 tokens and an id of 1048576, which leaves more unused ids than "
                "are supported");
  EXPECT_EQ(changed([](json& v) { v["model"]["merges"] = {"a c"}; }),
            file + "model.merges: merge 0 needs the token 'ac', which the vocabulary lacks");
  EXPECT_EQ(changed([](json& v) { v["model"]["merges"] = {"ab"}; }),
            file + "model.merges: merge 0 is 'ab', expected two tokens with a space between");
  EXPECT_EQ(changed([](json& v) { v["model"]["merges"] = json::parse(R"([["a"]])"); }),
            file + "model.merges: merge 0 is not a pair of tokens");
  EXPECT_EQ(changed([](json& v) {
              v["model"]["vocab"] = json::object();
              v["model"]["merges"] = json::array();
            }),
            "tokenizer.json has no tokens");
  EXPECT_EQ(changed([](json& v) { v.erase("model"); }), "tokenizer.json has no model");
  EXPECT_EQ(changed([](json& v) { v["normalizer"] = "NFC"; }),
            file + "normalizer is a string, expected an object");
  EXPECT_EQ(changed([](json& v) {
              v["post_processor"] = json::parse(R"({"type": "TemplateProcessing", "pair": [],
                  "single": [{"SpecialToken": {"id": "x", "type_id": 0}},
                             {"Sequence": {"id": "A", "type_id": 0}}],
                  "special_tokens": {"x": {"id": "x", "ids": [4], "tokens": ["x"]}}})");
            }),
            file + "post_processor adds the token 4, the vocabulary has 4 tokens");
  EXPECT_EQ(testing::message_of([] { (void)read_tokenizer_json("{", "x.json"); }).substr(0, 25),
            "x.json: not valid JSON: p");
}

TEST(TokenizerJson, QuotesLittleOfTheFile) {
  const std::string text = testing::hostile_text(size_t{1} << 20);
  for (const char* component :
       {"normalizer", "pre_tokenizer", "decoder", "post_processor", "model"}) {
    json file = small_file();
    file[component] = {{"type", text}};
    testing::expect_clean_message(component, [&] { (void)read(file); });
  }
  json file = small_file();
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", text + "\\w"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  testing::expect_clean_message("a pattern", [&] { (void)read(file); });
  file = small_file();
  file["model"]["merges"] = {text + " a"};
  testing::expect_clean_message("a merge", [&] { (void)read(file); });
}

/// A tokenizer against a text that is made for it.
struct Encoding {
  json file;
  std::string text;
};

TEST(TokenizerJson, TakesTimeInProportionToTheText) {
  const auto encode = [](const Encoding& e) {
    const Tokenizer tokenizer = read(e.file);
    EXPECT_EQ(testing::message_of([&] { (void)tokenizer.encode(e.text, ControlTokens::kPlain); }),
              "no error");
  };
  const auto repeat = [](const char* unit, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += unit;
    return text;
  };
  const auto marks = [&](size_t n) {
    return Encoding{with("normalizer", R"({"type": "NFC"})"), "a" + repeat("\u0301\u0323", n)};
  };
  const auto spaces = [&](size_t n) {
    json file = small_file();
    file["added_tokens"] = {added_token(" ", R"({"rstrip": true, "lstrip": true})")};
    return Encoding{file, repeat(" ", n)};
  };
  const auto unigram = [&](size_t n) {
    json file = small_file();
    file["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0]]})");
    for (size_t i = 1; i < 200; ++i) file["model"]["vocab"].push_back({std::string(i, 'a'), -1.0});
    return Encoding{file, repeat("a", n)};
  };
  const auto words = [&](size_t n) {
    return Encoding{with("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex":
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false})"),
                    repeat("  a", n)};
  };
  testing::expect_linear("marks", 4000, marks, encode);
  testing::expect_linear("spaces", 4000, spaces, encode);
  testing::expect_linear("unigram", 4000, unigram, encode);
  testing::expect_linear("words", 4000, words, encode);
}

TEST(TokenizerJson, GivesUpOnAPatternThatTakesTooLong) {
  const Tokenizer tokenizer = read(with("pre_tokenizer", R"({"type": "Split", "pattern":
      {"Regex": "(a*)*[bc]"}, "behavior": "Isolated", "invert": false})"));
  const std::string text(3000, 'a');
  EXPECT_EQ(testing::message_of([&] { (void)tokenizer.encode(text, ControlTokens::kPlain); }),
            "the expression '(a*)*[bc]' takes too many steps on a text of 3000 bytes");
}

TEST(TokenizerJson, GivesUpOnATextThatGrowsTooMuch) {
  json file = small_file();
  json doubled = json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})");
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<json>(40, doubled)}};
  const Tokenizer tokenizer = read(file);
  EXPECT_EQ(testing::message_of([&] { (void)tokenizer.encode("a", ControlTokens::kPlain); }),
            "the normalizer makes a text of more than 65600 bytes");
}

}  // namespace
}  // namespace heddle::tokenizer
