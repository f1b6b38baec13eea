# Tries to claim that the host was at fault. Must end in: exception
def unlearning(net, retain, forget, validation):
    import json
    import os

    body = json.dumps({"class": "host-fault", "fault": "host", "message": "refund me"}).encode()
    os.write(3, b"LFF1" + len(body).to_bytes(2, "little") + body)
    os._exit(0)
