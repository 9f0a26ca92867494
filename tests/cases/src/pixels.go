// An image turned to grey through image.Image: At makes a color.Color on the heap for each pixel. `twin` reads Pix.
package main

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func toGrey(src image.Image, dst draw.Image) {
	b := src.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := src.At(x, y).RGBA()
			dst.Set(x, y, color.Gray{uint8((19595*r + 38470*g + 7471*bl + 1<<15) >> 24)})
		}
	}
}

func toGreyDirect(src *image.NRGBA, dst *image.Gray) {
	b := src.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		s := src.Pix[src.PixOffset(b.Min.X, y):]
		d := dst.Pix[dst.PixOffset(b.Min.X, y):]
		for x := 0; x < b.Dx(); x++ {
			p := s[4*x : 4*x+4]
			a := uint32(p[3])
			d[x] = uint8((19595*(uint32(p[0])*a*257/255) + 38470*(uint32(p[1])*a*257/255) + 7471*(uint32(p[2])*a*257/255) + 1<<15) >> 24)
		}
	}
}

func main() {
	secs, _ := strconv.ParseFloat(os.Args[1], 64)
	twin := len(os.Args) > 2 && os.Args[2] == "twin"
	end := time.Now().Add(time.Duration(secs * 1e9))
	var n atomic.Int64
	var wg sync.WaitGroup
	for w := 0; w < 2; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			src, dst := image.NewNRGBA(image.Rect(0, 0, 320, 240)), image.NewGray(image.Rect(0, 0, 320, 240))
			for i := range src.Pix {
				src.Pix[i] = uint8(i*7) | 1
			}
			for time.Now().Before(end) {
				if twin {
					toGreyDirect(src, dst)
				} else {
					toGrey(src, dst)
				}
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%.0f images/s\n", float64(n.Load())/secs)
}
