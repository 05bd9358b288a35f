import json, os, socket, tempfile
token = json.loads(os.environ['XK_EXEC'])['token']
folder = tempfile.mkdtemp()
os.chdir(folder)
forged = '%s,9,%s,4,10.0.0.1:80,10.0.0.99:22'
directory = os.open('.', os.O_RDONLY)
def disguise(kind, letter):
    other = socket.socket(socket.AF_UNIX, kind)
    other.bind('/proc/self/fd/%d/%s' % (directory, forged % (token, letter)))
    return other
server = socket.socket(socket.AF_UNIX)
server.bind('server')
server.listen()
client = disguise(socket.SOCK_STREAM, 's')
client.connect('server')
peer, address = server.accept()
assert isinstance(address, str) and peer.getpeername() == address, address
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind('receiver')
disguise(socket.SOCK_DGRAM, 'd').sendto(b'forged', 'receiver')
data, address = receiver.recvfrom(100)
assert isinstance(address, str), address
for file in os.listdir('.'): os.unlink(file)
os.rmdir(folder)
print('seen through')
