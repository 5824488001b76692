"""`heddle serve` with adapters from S3, a server of moto on this machine: names, signatures, hashes of uploads in one piece and in parts.

  python3 tests/fetch/s3_test.py HEDDLE
"""
import hashlib
import json
import logging
import pathlib
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
import boto3
import serve_case
from moto.server import ThreadedMotoServer
from serve_case import Server, main
from sources_test import serve_environment

PART = 5 << 20  # the least that S3 allows
WEIGHTS = "adapter_model.safetensors"


class Case(serve_case.Case):
    """A server of its own for each class; bucket "loom" has a0 as adapters/sql."""

    @classmethod
    def setUpClass(cls):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
        cls.moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        cls.moto.start()
        cls.addClassCleanup(cls.moto.stop)
        host, port = cls.moto.get_host_and_port()
        cls.url = f"http://{host}:{port}"
        cls.post("/moto-api/reset")
        cls.client = cls.client_of("s3", "testing", "testing")
        cls.client.create_bucket(Bucket="loom")
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.cache, cls.folders = folder / "cache", folder / "adapters"
        keys = cls.make_keys()
        cls.enterClassContext(serve_environment(AWS_ENDPOINT_URL_S3=cls.url, AWS_REGION="us-east-1", **keys))
        cls.server = Server(folder, "--adapter-source", "s3", "--adapter-source-allow", "s3://loom/adapters/*", "--adapter-cache", cls.cache,
                            "--adapter-refresh", "0")
        cls.addClassCleanup(cls.server.stop)
        cls.upload("adapters/sql", "a0")

    @classmethod
    def make_keys(cls):
        return {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}

    @classmethod
    def post(cls, path, body=b""):
        with urllib.request.urlopen(urllib.request.Request(cls.url + path, body, {"Content-Type": "text/plain"}, method="POST")) as answer:
            return answer.read()

    @classmethod
    def client_of(cls, service, key, secret):
        return boto3.client(service, endpoint_url=cls.url, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1")

    @classmethod
    def upload(cls, place, adapter, **more):
        for path in (cls.folders / adapter).iterdir():
            cls.client.put_object(Bucket="loom", Key=f"{place}/{path.name}", Body=path.read_bytes(), **more)

    def answer(self, model, status=200, **fields):
        """The tokens of a greedy answer; of another status the message."""
        body = {"model": model, "prompt": "ab", "max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
        got, answer = self.server.post("/v1/completions", body)
        self.assertEqual(got, status, answer)
        return answer["error"]["message"] if status != 200 else tuple(answer["choices"][0]["token_ids"])


class Objects(Case):
    def test_an_adapter_by_its_bucket_and_folder(self):
        expected = self.answer("a0")
        self.assertEqual(self.answer("s3://loom/adapters/sql"), expected)
        self.assertEqual(self.answer("loom/adapters/sql", adapter_source="s3"), expected)
        self.assertEqual(self.answer("model", adapter_id="s3://loom/adapters/sql", adapter_source="s3"), expected)
        names = [path.name for path in (self.cache / "adapters").iterdir() if "sql@" in path.name]
        self.assertEqual(len(names), 1)
        listed = [card["id"] for card in json.loads(self.server.request("GET", "/v1/models")[2])["data"]]
        self.assertEqual(listed.count("s3://loom/adapters/sql"), 1, listed)
        self.assertRegex(names[0], r"^s3:loom%2Fadapters%2Fsql@[0-9a-f]{40}$")
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "loom/adapters/sql", "adapter_source": "s3"})
        self.assertEqual(status, 200, text)
        self.assertEqual(self.answer("mine"), expected)

    def test_a_folder_with_other_content_is_another_version(self):
        self.upload("adapters/moving", "a0")
        self.assertEqual(self.answer("s3://loom/adapters/moving"), self.answer("a0"))
        self.upload("adapters/moving", "a1")
        self.assertEqual(self.answer("s3://loom/adapters/moving"), self.answer("a1"))

    def test_names_with_signs(self):
        self.upload("adapters/team a+b/sql (1)", "a1")
        self.assertIn("is no folder in S3", self.answer("s3://loom/adapters/team a+b/sql (1)", status=400))
        self.upload("adapters/a+b=c&d/sql@1,~(2)", "a1")
        self.assertEqual(self.answer("s3://loom/adapters/a+b=c&d/sql@1,~(2)"), self.answer("a1"))

    def test_hashes_of_all_ways_to_upload(self):
        self.upload("adapters/sha", "a1", ChecksumAlgorithm="SHA256")
        self.assertEqual(self.answer("s3://loom/adapters/sha"), self.answer("a1"))
        self.upload("adapters/parts", "a2")
        content = (self.folders / "a2" / WEIGHTS).read_bytes()
        filler = b" " * (12 << 20)  # a header of safetensors may end with spaces
        length = int.from_bytes(content[:8], "little")
        content = (length + len(filler)).to_bytes(8, "little") + content[8:8 + length] + filler + content[8 + length:]
        place = {"Bucket": "loom", "Key": f"adapters/parts/{WEIGHTS}"}
        upload = self.client.create_multipart_upload(**place)["UploadId"]
        parts = []
        for number, begin in enumerate(range(0, len(content), PART), 1):
            part = self.client.upload_part(**place, UploadId=upload, PartNumber=number, Body=content[begin:begin + PART])
            parts.append({"ETag": part["ETag"], "PartNumber": number})
        self.client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts})
        self.assertTrue(self.client.head_object(**place)["ETag"].endswith(f'-{len(parts)}"'))
        self.assertEqual(self.answer("s3://loom/adapters/parts"), self.answer("a2"))
        fetched = next((self.cache / "adapters").glob("s3:loom%2Fadapters%2Fparts@*")) / WEIGHTS
        self.assertEqual(hashlib.sha256(fetched.read_bytes()).digest(), hashlib.sha256(content).digest())

    def test_what_is_not_there_or_not_allowed(self):
        self.assertIn("S3 does not have it", self.answer("s3://loom/adapters/none", status=404))
        self.client.put_object(Bucket="loom", Key="adapters/half/adapter_config.json", Body=b"{}")
        self.assertIn(WEIGHTS, self.answer("s3://loom/adapters/half", status=404))
        self.answer("s3://loom/secret", status=404)
        self.answer("loom/secret", status=403, adapter_source="s3")
        for name in ("loom/adapters/../secret", "loom/adapters/./sql", "loom/adapters//sql", "loom/adapters/a\\b", "loom/adapters/a\nb"):
            self.answer(name, status=400, adapter_source="s3")
        self.assertIn("is for the hub", self.answer("s3://loom/adapters/sql", status=400, adapter_source="s3", api_token="t"))
        self.assertIn("is no source of this server", self.answer("acme/sql", status=400, adapter_source="hub"))
        self.assert_alive()


class Signatures(Case):
    """Every request must be signed by a user who may read the bucket: moto checks that as IAM does."""

    @classmethod
    def make_keys(cls):
        iam = cls.client_of("iam", "testing", "testing")
        iam.create_user(UserName="reader")
        policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        cls.key = key["AccessKeyId"], key["SecretAccessKey"]
        return {"AWS_ACCESS_KEY_ID": cls.key[0], "AWS_SECRET_ACCESS_KEY": cls.key[1]}

    def test_a_signature_opens_the_bucket_and_no_other_does(self):
        self.upload("adapters/a+b/sql", "a1")
        self.post("/moto-api/reset-auth", b"0")
        self.addCleanup(self.post, "/moto-api/reset-auth", b"1000000")
        self.assertEqual(self.answer("s3://loom/adapters/sql"), self.answer("a0"))
        self.assertEqual(self.answer("s3://loom/adapters/a+b/sql"), self.answer("a1"))
        for keys in ({"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}):
            with serve_environment(**keys), tempfile.TemporaryDirectory() as folder:
                other = Server(folder, "--adapter-source", "s3", "--adapter-source-allow", "*", "--adapter-cache", pathlib.Path(folder) / "cache")
                try:
                    status, answer = other.post("/v1/completions", {"model": "s3://loom/adapters/sql", "prompt": "ab"})
                    self.assertEqual(status, 403, answer)
                    self.assertNotIn(self.key[1], other.log.read_text())
                finally:
                    other.stop()


if __name__ == "__main__":
    main()
