// Any text as config.json: read or refused in one line. The input up to the first zero byte is
// config.json, what follows is the index of its weights.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/source/folder_model.h"
#include "model/test/one_line.h"
#include "testing/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const heddle::testing::TempFolder kFolder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  kFolder.write("config.json", text.substr(0, end));
  kFolder.write("generation_config.json", text.substr(0, end));
  kFolder.write("model.safetensors.index.json",
                end == size ? R"({"weight_map": {}})" : text.substr(end + 1));
  heddle::testing::expect_one_line([&] {
    const heddle::model::FolderModel model(kFolder.path().string());
    (void)model.unread_settings();
    for (int64_t i = 0; i < 3; ++i) (void)model.config().rotations.front().params_for(1 << i);
    heddle::testing::expect_one_line([&] { (void)model.end_tokens(); });
    heddle::testing::expect_one_line([&] { (void)model.names(); });
  });
  return 0;
}
