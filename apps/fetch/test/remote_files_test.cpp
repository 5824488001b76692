#include "fetch/remote_files.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fetch/fetch_error.h"
#include "fetch/test/made_source.h"

namespace heddle::fetch {
namespace {

RemoteListing listing_of(const std::vector<std::string>& names) {
  RemoteListing listing{.id = "loom/sql", .version = std::string(40, 'a')};
  for (const std::string& name : names) listing.files.push_back(file_of(name, "content"));
  return listing;
}

std::vector<std::string> wanted(const std::vector<std::string>& names, RepositoryKind kind,
                                const std::string& gguf = {}) {
  std::vector<std::string> found;
  for (const RemoteFile& file : wanted_files(listing_of(names), kind, gguf)) {
    found.push_back(file.name);
  }
  std::ranges::sort(found);
  return found;
}

std::string refusal(const std::vector<std::string>& names, RepositoryKind kind,
                    const std::string& gguf = {}) {
  try {
    (void)wanted(names, kind, gguf);
  } catch (const FetchError& error) {
    return error.what();
  }
  return "";
}

TEST(WantedFiles, AreWeightsAndTextsThatAreRead) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(wanted({"adapter_config.json", "adapter_model.safetensors", "tokenizer.json",
                    "README.md", "training_args.bin", "optimizer.pt", "model.py", ".gitattributes",
                    "checkpoint-5/adapter_model.safetensors", "config.json",
                    "additional_chat_templates/rag.jinja"},
                   RepositoryKind::kAdapter),
            (Names{"adapter_config.json", "adapter_model.safetensors",
                   "additional_chat_templates/rag.jinja", "tokenizer.json"}));
  EXPECT_EQ(
      wanted({"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
              "consolidated.safetensors", "model.safetensors.index.json", "modeling_x.py",
              "original/params.json", "vocab.json", "merges.txt", "onnx/model.onnx",
              "pytorch_model.bin"},
             RepositoryKind::kModel),
      (Names{"config.json", "merges.txt", "model-00001-of-00002.safetensors",
             "model-00002-of-00002.safetensors", "model.safetensors.index.json", "vocab.json"}));
  EXPECT_EQ(wanted({"a-Q4_K_M.gguf", "a-Q8_0.gguf", "config.json"}, RepositoryKind::kModel,
                   "a-Q8_0.gguf"),
            Names{"a-Q8_0.gguf"});
}

TEST(WantedFiles, NeverLieElsewhere) {
  const std::vector<std::string> hostile = {"../adapter_config.json",
                                            "/etc/adapter_config.json",
                                            "adapter_config.json/../../x",
                                            "additional_chat_templates/../../../x.jinja",
                                            "additional_chat_templates/..jinja",
                                            "additional_chat_templates/.hidden.jinja",
                                            "additional_chat_templates//x.jinja",
                                            std::string("additional_chat_templates/x\0.jinja", 33),
                                            "additional_chat_templates/x\n.jinja",
                                            "additional_chat_templates\\x.jinja",
                                            "./tokenizer.json",
                                            "tokenizer.json/",
                                            ""};
  std::vector<std::string> names = hostile;
  names.insert(names.end(), {"adapter_config.json", "adapter_model.safetensors"});
  EXPECT_EQ(wanted(names, RepositoryKind::kAdapter),
            (std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"}));
  EXPECT_NE(refusal({"../x.gguf"}, RepositoryKind::kModel, "../x.gguf"), "");
}

TEST(WantedFiles, SayWhatIsMissing) {
  EXPECT_NE(refusal({"adapter_config.json", "adapter_model.bin"}, RepositoryKind::kAdapter)
                .find("has no adapter_model.safetensors, only adapter_model.bin, a pickle"),
            std::string::npos);
  EXPECT_NE(refusal({"a-Q4_0.gguf", "b.gguf"}, RepositoryKind::kModel).find("a-Q4_0.gguf, b.gguf"),
            std::string::npos);
  EXPECT_NE(refusal({"adapter_model.safetensors"}, RepositoryKind::kAdapter)
                .find("has no adapter_config.json"),
            std::string::npos);
  EXPECT_NE(refusal({"adapter_config.json", "adapter_model.safetensors", "adapter_config.json"},
                    RepositoryKind::kAdapter)
                .find("lists adapter_config.json twice"),
            std::string::npos);
}

TEST(WantedFiles, HaveASizeAndAHash) {
  RemoteListing listing = listing_of({"adapter_config.json", "adapter_model.safetensors"});
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 43}) {
    RemoteListing wrong = listing;
    wrong.files[1].size = size;
    EXPECT_THROW((void)wanted_files(wrong, RepositoryKind::kAdapter), FetchError);
  }
  listing.files[0].hash.hex = "../../../../etc/passwd";
  EXPECT_THROW((void)wanted_files(listing, RepositoryKind::kAdapter), FetchError);
}

TEST(Revisions, AreBranchesTagsAndCommits) {
  for (const char* text :
       {"main", "v1.0", "refs/pr/1", "0123456789abcdef0123456789abcdef01234567"}) {
    EXPECT_TRUE(is_revision(text)) << text;
  }
  for (const char* text :
       {"", "..", "a/../b", "/main", "main/", "a//b", "-x", "a b", "a%2f", "a?b", "a#b", "a\n"}) {
    EXPECT_FALSE(is_revision(text)) << text;
  }
}

}  // namespace
}  // namespace heddle::fetch
